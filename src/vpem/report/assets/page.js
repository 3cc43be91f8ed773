// The sections of the page, one after another.

const data = JSON.parse(find("#data").textContent);
const nComponents = data.weights.length;
const components = data.weights.map((_, component) => component);
const parties = data.agents.filter((agent) => agent.hub !== null);
const boundName = data.batches ? "free energy per row" : "log-likelihood per row";
const isStar = data.agents.length > parties.length;
const pools = data.hubs.some((hub) => hub.members.length > 1);

function about(id, ...texts) {
  find(`#${id} .about`).textContent = texts.filter(Boolean).join(" ");
}

/** A party in a sentence: a bare number says what it is. */
function nameOf(number) {
  const { name } = data.agents[number];
  return /^\d+$/.test(name) ? `party ${name}` : name;
}

function caption(id, text) {
  find(`#${id} figcaption`).textContent = text;
}

// In short

function sayParties() {
  if (isStar) return "A server adds what they contribute.";
  return parties.length === 1 ? "It holds all columns." : "They add up with their neighbours; there is no server.";
}

function sayEnd() {
  if (data.converged) return `Converged: the last one changed less than ${say(data.tol)} per row.`;
  if (!data.iterations) return "The model is at its start.";
  if (data.gain === null) return "Steps of a stream, which has no end.";
  return "Not converged: it stopped before the changes were small.";
}

function writeFacts() {
  const bounds = data.lower_bounds;
  const gaps = data.missing > 0 ? ` ${sayShare(data.missing)} of the values are missing.` : "";
  const facts = [
    ["Rows", sayCount(data.rows), `Examples, the same for all parties.${gaps}`],
    ["Columns", sayCount(data.n_columns), pools ? "Members of a hub hand theirs to its root." : "Each stays with the party that holds it."],
    ["Parties", sayCount(parties.length), sayParties()],
    ["Components", sayCount(nComponents), "Groups of rows, each with its own mean and covariance."],
    [
      "Iterations",
      sayCount(data.iterations),
      sayEnd(),
    ],
    [
      boundName[0].toUpperCase() + boundName.slice(1),
      bounds.length ? say(bounds[bounds.length - 1], 5) : "not known",
      "Higher is better; compare fits of the same table only.",
    ],
    ["Sent in all", sayBytes(data.traffic.bytes), `In ${sayMany(data.traffic.rounds, "round")}, one after another.`],
    ["Messages", sayShort(data.traffic.messages), `Over ${sayMany(data.links.length, "link")}, both ways.`],
  ];
  find("#facts dl").append(
    ...facts.map(([name, value, meaning]) =>
      make("div", {}, make("dt", {}, name), make("dd", { class: "value" }, value), make("dd", { class: "meaning" }, meaning)),
    ),
  );
  find("#title").textContent = data.title;
  find("#lead").textContent = parties.length === 1
    ? "One Gaussian mixture, fitted by one party."
    : `One Gaussian mixture, fitted by ${sayCount(parties.length)} parties that hold different columns of the same rows.`;
  find("#revealed").textContent = pools ? "Roots of hubs hold the columns of their members." : "Columns were not sent.";
  find("#contents").append(
    ...[...document.querySelectorAll("section")].map((section) =>
      make("li", {}, make("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)),
    ),
  );
  find("#privacy p").textContent =
    `No row of the data can be read from this page: limits of the figures are rounded quantiles, bins with fewer than ${data.smallest} rows ` +
    `are left empty, and components that stand for fewer are not drawn. It was made by vpem ${data.versions.vpem}, and it asks nothing of any network.`;
}

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
  const few = data.agents.length <= 12;
  const margin = few ? Math.min(110, width / 4) : 14;
  const spans = [0, 1].map((axis) => Math.max(...data.agents.map((agent) => agent.place[axis])));
  const size = Math.min((width - 2 * margin) / (spans[0] || 1), 340 / (spans[1] || 1));
  const height = Math.max(few ? 80 : 40, spans[1] * size + (few ? 60 : 28));
  const places = data.agents.map(({ place: [x, y] }) => [
    width / 2 + (x - spans[0] / 2) * size,
    height / 2 - (y - spans[1] / 2) * size,
  ]);
  const radius = few ? 10 : data.agents.length > 60 ? 5 : 7;
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

// Log-likelihood

function addTrajectory() {
  const bounds = data.lower_bounds;
  const slider = find("#iteration");
  const known = bounds.filter((bound) => bound !== null);
  if (!known.length) {
    about("trajectory", "No iteration was made.");
    slider.closest(".choices").remove();
    return;
  }
  about(
    "trajectory",
    data.batches ? "With batches, the free energy is measured: a bound that the log-likelihood does not fall below." : "",
    "Mean over the roots, in each iteration.",
    data.gain === null ? "" : `One more exact step would gain ${say(data.gain, 2)} per row.`,
  );
  slider.max = bounds.length;
  slider.value = bounds.length;
  const tell = () => caption("trajectory", `Iteration ${slider.value}: ${say(bounds[slider.value - 1], 6)} per row.`);
  const spread = Math.max(...known) - Math.min(...known) || Math.abs(known[0]) / 10 || 1;
  const [low, high] = [Math.min(...known) - 0.05 * spread, Math.max(...known) + 0.05 * spread];
  const figure = addFigure("trajectory", (width) => {
    const box = frame(width, Math.min(300, 0.75 * width), leftOf(low, high));
    const x = scale(1, bounds.length, box.left + (bounds.length > 1 ? 0 : (box.right - box.left) / 2), box.right);
    const y = scale(low, high, box.bottom, box.top);
    const points = bounds.flatMap((bound, number) => (bound === null ? [] : [[x(number + 1), y(bound)]]));
    const now = Number(slider.value);
    const label = `The ${boundName} goes from ${say(known[0], 5)} to ${say(known[known.length - 1], 5)} in ${sayMany(bounds.length, "iteration")}.`;
    const svg = canvas(
      width,
      box.height,
      label,
      axes(box, { low: 1, high: Math.max(bounds.length, 1), name: "iteration", whole: true }, { low, high, name: boundName }),
      draw("path", { class: "line", d: path(points) }),
      draw("line", { class: "cursor", x1: x(now), x2: x(now), y1: box.top, y2: box.bottom }),
      ...(bounds[now - 1] === null ? [] : [draw("circle", { class: "sign", fill: "var(--colour-5)", cx: x(now), cy: y(bounds[now - 1]), r: 4.5 })]),
    );
    svg.addEventListener("pointermove", (event) => {
      const bounding = svg.getBoundingClientRect();
      const place = ((event.clientX - bounding.left) / bounding.width) * width;
      const nearest = Math.round(1 + ((place - box.left) / (box.right - box.left)) * (bounds.length - 1));
      const next = Math.min(bounds.length, Math.max(1, nearest));
      if (next !== Number(slider.value)) {
        slider.value = next;
        slider.dispatchEvent(new Event("input"));
      }
    });
    return svg;
  });
  slider.addEventListener("input", () => {
    tell();
    figure.redraw();
  });
  tell();
}

// Weights, and the roots' own

function addWeights() {
  const most = Math.max(...data.weights);
  addFigure("weights", (width) => {
    const left = 100;
    const x = scale(0, most, 0, Math.max(20, width - left - 62));
    const bars = components.flatMap((component) => {
      const y = component * 30 + 4;
      const weight = data.weights[component];
      return [
        draw("text", { x: left - 8, y: y + 16, "text-anchor": "end" }, `component ${component}`),
        draw("rect", { class: "sign", fill: componentColour(component), x: left, y, width: Math.max(1, x(weight)), height: 22 }),
        draw("text", { x: left + x(weight) + 8, y: y + 16 }, sayShare(weight)),
      ];
    });
    const label = `Weights: ${components.map((component) => `component ${component} ${sayShare(data.weights[component])}`).join(", ")}.`;
    return canvas(width, nComponents * 30 + 4, label, ...bars);
  });
}

function addAgreement() {
  const spread = Math.max(
    ...components.map((component) => {
      const own = data.hub_weights.map((weights) => weights[component]);
      return Math.max(...own) - Math.min(...own);
    }),
  );
  about(
    "agreement",
    isStar
      ? "The server's sum is the same for all, and so the roots agree."
      : "Every root keeps its own estimates; after finitely many rounds they differ a little.",
    `Largest difference between two roots' responsibilities for a row: ${say(data.disagreement, 2)}.`,
  );
  caption(
    "agreement",
    `Each dot is one root's own estimate, the first root on top; ${spread ? `the weights differ by ${say(spread, 2)} at most` : "the weights are equal to six digits"}.`,
  );
  const most = Math.max(...data.hub_weights.flat());
  addFigure("agreement", (width) => {
    const strip = Math.max(34, Math.min(56, 8 + 3 * data.hubs.length));
    const box = frame(width, nComponents * strip + 50, 100);
    const x = scale(0, most * 1.05, box.left, box.right);
    const radius = data.hubs.length > 20 ? 2.5 : 4;
    const children = components.flatMap((component) => {
      const top = box.top + component * strip;
      const dots = data.hub_weights.map((weights, hub) => {
        const cy = top + 6 + ((strip - 12) * (hub + 0.5)) / data.hubs.length;
        const dot = draw("circle", { fill: componentColour(component), cx: x(weights[component]), cy, r: radius });
        dot.append(draw("title", {}, `${data.agents[data.hubs[hub].root].name}: ${say(weights[component], 6)}`));
        return dot;
      });
      return [
        draw("line", { class: "grid", x1: box.left, x2: box.right, y1: top + strip, y2: top + strip }),
        draw("text", { x: box.left - 8, y: top + strip / 2 + 4, "text-anchor": "end" }, `component ${component}`),
        ...dots,
      ];
    });
    const label = `Weights as ${sayMany(data.hubs.length, "root")} estimate them; they differ by ${say(spread, 2)} at most.`;
    return canvas(width, box.height, label, axes(box, { low: 0, high: most * 1.05, name: "weight" }, null), ...children);
  });
}

// Traffic, repairs, settings

function addTraffic() {
  const { messages, bytes, rounds, agents } = data.traffic;
  about(
    "traffic",
    `In all ${sayMany(messages, "message")} with ${sayCount(bytes)} bytes (${sayBytes(bytes)}) in ${sayMany(rounds, "round")}, as a real network would send them.`,
    "Press a heading to sort.",
  );
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

function addRepairs() {
  if (!data.repairs.length) {
    about("repairs", "None: no component collapsed or starved.");
    find("#repairs .scroll").remove();
    return;
  }
  about("repairs", "Components that collapsed (no room left for a covariance) or starved (no rows left).");
  const rows = data.repairs.map(([iteration, component, party, reason, restarted]) => [
    String(iteration), String(component), party, reason, restarted ? "restarted on another row" : "kept as it was",
  ]);
  find("#repairs .scroll").append(table(["Iteration", "Component", "Found by", "Reason", "What was done"], rows));
}

function addSettings() {
  const versions = Object.entries(data.versions).map(([name, version]) => [`${name} version`, version]);
  find("#settings dl").append(
    ...[...data.settings, ...versions].map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
  );
}

for (const add of [writeFacts, addNetwork, addTrajectory, addWeights, addAgreement, addMarginals, addPairs, addCovariances, addTraffic, addRepairs, addSettings]) add();
