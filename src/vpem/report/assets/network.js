// The cards about the network: which agents are linked, and what was sent.

// Network

function neighboursOf(number) {
  return data.links.flatMap(([one, other]) => (one === number ? [other] : other === number ? [one] : []));
}

function isRoot(number) {
  return data.hubs.some((hub) => hub.root === number && hub.members.length > 1);
}

function describeAgent(number) {
  const agent = data.agents[number];
  const links = sayMany(neighboursOf(number).length, "link");
  if (agent.hub === null) return `${agent.name}: adds the contributions, holds no columns, ${links}.`;
  const hub = data.hubs[agent.hub];
  const place = isRoot(number)
    ? `, root of a hub of ${hub.members.length}`
    : hub.members.length > 1 ? `, in the hub of ${nameOf(hub.root)}` : "";
  return `${nameOf(number)}: ${sayMany(agent.columns, "column")}, ${links}${place}.`;
}

/** Side of an agent's sign where its links leave most room for the name. */
function labelSide(places, number) {
  const [x, y] = places[number];
  const angles = neighboursOf(number).map((other) => Math.atan2(places[other][1] - y, places[other][0] - x));
  const sides = [
    { angle: Math.PI / 2, dx: 0, dy: 23, anchor: "middle" },
    { angle: -Math.PI / 2, dx: 0, dy: -14, anchor: "middle" },
    { angle: 0, dx: 16, dy: 4, anchor: "start" },
    { angle: Math.PI, dx: -16, dy: 4, anchor: "end" },
  ];
  const room = (side) => Math.min(4, ...angles.map((angle) => Math.abs(Math.atan2(Math.sin(angle - side.angle), Math.cos(angle - side.angle)))));
  return sides.reduce((best, side) => (room(side) > room(best) + 0.2 ? side : best));
}

function paintNetwork(width) {
  const few = data.agents.length <= 26; // the names have room
  const margin = few ? Math.min(110, width / 4) : 14;
  const spans = [0, 1].map((axis) => Math.max(...data.agents.map((agent) => agent.place[axis])));
  const size = Math.min((width - 2 * margin) / (spans[0] || 1), (data.agents.length > 5 ? 320 : 220) / (spans[1] || 1));
  const height = Math.max(few ? 80 : 40, spans[1] * size + (few ? 60 : 28));
  const places = data.agents.map(({ place: [x, y] }) => [
    width / 2 + (x - spans[0] / 2) * size,
    height / 2 - (y - spans[1] / 2) * size,
  ]);
  const radius = data.agents.length > 60 ? 5 : data.agents.length > 12 ? 7 : 10;
  const chosen = Number(find("#agent").value);
  const links = data.links.map(([one, other]) =>
    draw("line", { class: "link", x1: places[one][0], y1: places[one][1], x2: places[other][0], y2: places[other][1] }),
  );
  const signs = data.agents.map((agent, number) => {
    const [x, y] = places[number];
    const look = { class: `sign${number === chosen ? " chosen" : ""}${agent.hub === null ? " server" : ""}` };
    if (agent.hub !== null) look.fill = hubColour(agent.hub);
    const r = radius + (number === chosen ? 2 : 0);
    const side = 1.15 * r;
    const sign = isRoot(number)
      ? draw("rect", { ...look, x: x - side, y: y - side, width: 2 * side, height: 2 * side })
      : draw("circle", { ...look, cx: x, cy: y, r });
    sign.append(draw("title", {}, agent.name));
    sign.addEventListener("pointerenter", () => caption("network", describeAgent(number)));
    sign.addEventListener("click", () => {
      find("#agent").value = String(number);
      find("#agent").dispatchEvent(new Event("change"));
    });
    return sign;
  });
  const names = !few ? [] : data.agents.map((agent, number) => {
    const side = labelSide(places, number);
    const aside = places[number][0] - width / 2;
    // Names above or below lean outward, so that two beside each other do not meet.
    const anchor = side.anchor !== "middle" || Math.abs(aside) < 5 ? side.anchor : aside > 0 ? "start" : "end";
    const dx = anchor === side.anchor ? side.dx : -6 * Math.sign(aside);
    const attributes = { class: "halo", x: places[number][0] + dx, y: places[number][1] + side.dy, "text-anchor": anchor };
    return draw("text", attributes, shortenName(agent.name, Math.max(8, Math.floor((margin - 16) / 6.5))));
  });
  const label = `Network of ${sayMany(data.agents.length, "agent")} and ${sayMany(data.links.length, "link")}; the table below says the same.`;
  return canvas(width, height, label, draw("g", { class: data.links.length > 300 ? "links-many" : "" }, ...links), ...signs, ...names);
}

function addNetwork() {
  if (isPart) {
    find("#network").remove();
    return;
  }
  const largest = Math.max(...data.hubs.map((hub) => hub.members.length));
  about(
    "network",
    isStar
      ? "Every party sends its contributions to the server, the empty circle, which sends their sum back."
      : "Lines are links: neighbours average what they know, round after round.",
    largest > 1
      ? `Each of the ${sayMany(data.hubs.length, "hub")} has a colour, and its root, which holds the hub's columns, is a square.`
      : "Each party has a colour.",
    data.hubs.length > 8 ? "With so many, colours repeat." : "",
  );
  const select = find("#agent");
  setOptions(select, data.agents.map((agent, number) => [number, agent.name]));
  const figure = addFigure("network", paintNetwork);
  const tell = () => caption("network", describeAgent(Number(select.value)));
  select.addEventListener("change", () => {
    tell();
    figure.redraw();
  });
  find("#network .plot").addEventListener("pointerleave", tell);
  tell();
  const rows = data.agents.map((agent, number) => [
    agent.name,
    agent.hub === null ? "server" : data.agents[data.hubs[agent.hub].root].name,
    sayCount(agent.columns),
    neighboursOf(number).map((other) => data.agents[other].name).join(", ") || "none",
  ]);
  find("#network .scroll").append(table(["Agent", "Root", "Columns", "Linked with"], rows));
}

// Traffic

function addTraffic() {
  const { messages, bytes, rounds, agents } = data.traffic;
  about(
    "traffic",
    isPart
      ? `This party has sent ${sayCount(bytes)} bytes (${sayBytes(bytes)}) in ${sayMany(rounds, "round")}.`
      : `In all ${sayMany(messages, "message")} with ${sayCount(bytes)} bytes (${sayBytes(bytes)}) in ${sayMany(rounds, "round")}, as a real network would send them. Press a heading to sort.`,
  );
  find("#revealed").textContent = isPart ? "" : pools ? "Roots of hubs hold the columns of their members." : "Columns were not sent.";
  if (isPart) {
    find("#traffic .scroll").remove();
    return;
  }
  const items = agents.map(([messagesSent, bytesSent, , bytesReceived], number) => ({ name: data.agents[number].name, messagesSent, bytesSent, bytesReceived }));
  const most = Math.max(1, ...items.flatMap((item) => [item.bytesSent, item.bytesReceived]));
  const bar = (amount) =>
    draw("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { class: "cell", opacity: 0.55, width: (100 * amount) / most, height: 4 }));
  const amount = (name, key) => ({ name, value: (item) => item[key], cell: (item) => make("td", { class: "amount" }, sayBytes(item[key]), bar(item[key])) });
  const columns = [
    { name: "Agent", value: (item) => item.name, cell: (item) => make("th", { scope: "row" }, item.name) },
    amount("Sent", "bytesSent"),
    amount("Received", "bytesReceived"),
    { name: "Messages sent", value: (item) => item.messagesSent, cell: (item) => make("td", { class: "amount" }, sayShort(item.messagesSent)) },
  ];
  find("#traffic .scroll").append(sortableTable(columns, items, 1));
}
