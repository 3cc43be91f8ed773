// The cards about who the clusters are: profiles of the components, and what parties and columns tell about them.

const TOP_COLUMNS = 12;
const TOP_BARS = 8;

// Profiles

/** A feature without the name of its party, which often begins or ends it. */
function ownName(feature) {
  const { name } = feature;
  const party = data.agents[feature.party].name;
  const rest = name.length - party.length;
  if (rest > 1 && name.startsWith(party) && /[\s._:/-]/.test(name[party.length])) return name.slice(party.length + 1);
  if (rest > 1 && name.endsWith(party) && /[\s._:/-]/.test(name[rest - 1])) return name.slice(0, rest - 1);
  return name;
}

/** Names that most parties have a column of, or none: then parties have no rows in a map. */
function sharedNames() {
  const names = [...new Set(data.features.map(ownName))];
  const holders = new Set(data.features.map((feature) => feature.party)).size;
  return holders > 1 && names.length > 1 && data.features.length >= 0.6 * holders * names.length ? names : [];
}

/** The distance with the strongest colour. */
function farthest() {
  const distances = data.features.flatMap((feature) => (feature.distances ?? []).map((distance) => Math.abs(distance ?? 0)));
  return Math.max(0.5, Math.min(3, Math.max(0, ...distances)));
}

function meanOf(feature, component) {
  return feature.limits === null || feature.means[component] === null ? null : inUnits(feature, feature.means[component]);
}

function deviationOf(feature, component) {
  return feature.deviations[component] * (feature.limits[1] - feature.limits[0]);
}

function sayDistance(distance) {
  if (Math.abs(distance) < 0.05) return "as everyone";
  return `${say(Math.abs(distance), 2)} deviations ${distance < 0 ? "below" : "above"} everyone`;
}

function tellProfile(feature, component) {
  const mean = meanOf(feature, component);
  const holder = `${feature.name}, held by ${nameOf(feature.party)}`;
  if (mean === null) return `${holder}: component ${component} has too few values to be shown.`;
  if (feature.labels) {
    const place = cellCategory(feature, component);
    const [name, own] = [feature.labels[place], sayShare(feature.component_shares[component][place])];
    const distance = feature.distances === null ? "" : `, ${sayDistance(feature.distances[component])}`;
    return `${holder}: ${name} has a share of ${own} in component ${component}, and of ${sayShare(feature.shares[place])} in all rows${distance}.`;
  }
  const own = `${holder}: ${say(mean)} \u00b1 ${say(deviationOf(feature, component), 3)} in component ${component}`;
  if (feature.distances === null) return `${own}; some components have too few values to tell what everyone has.`;
  const [centre, spread] = feature.everyone;
  return `${own}, ${sayDistance(feature.distances[component])} (${say(centre)} \u00b1 ${say(spread, 3)}).`;
}

function depthOf(feature, component, limit) {
  const distance = feature.distances === null ? null : feature.distances[component];
  return distance === null ? 0 : Math.min(1, Math.abs(distance) / limit);
}

function isBelow(feature, component) {
  return feature.distances !== null && feature.distances[component] < 0;
}

/** A number of three digits, as it fits in a cell. */
function sayShortValue(value) {
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return say(value, 2);
  return size >= 100 ? sayCount(Math.round(value)) : say(value, 3);
}

/** The category of a component's cell: the one whose share is farthest above everyone's, if that is known, or else the most common. */
function cellCategory(feature, component) {
  const shares = component === null ? feature.shares : feature.component_shares[component];
  return component === null || !feature.typical ? shares.indexOf(Math.max(...shares)) : feature.typical[component];
}

function sayCategory(feature, component) {
  const place = cellCategory(feature, component);
  return `${feature.labels[place]} ${sayShare((component === null ? feature.shares : feature.component_shares[component])[place])}`;
}

/** Steps of colour from far below everyone to far above, between words; in a table they are half as strong as in a map. */
function addColours(strongest) {
  const steps = [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1];
  const strip = draw("svg", { class: "steps", viewBox: `0 0 ${10 * steps.length} 10`, preserveAspectRatio: "none", "aria-hidden": "true" });
  strip.append(...steps.map((step, number) => draw("rect", { x: 10 * number, width: 10, height: 10, fill: step < 0 ? "var(--negative)" : "var(--positive)", "fill-opacity": strongest * Math.abs(step) })));
  const limit = say(farthest(), 2);
  find("#profiles .legend").replaceChildren(make("span", {}, `orange: ${limit} deviations below everyone`, strip, `blue: ${limit} deviations above`));
}

/** One cell of the profiles' table: the mean and the deviation, on a ground that tells the distance. */
function profileCell(feature, component, limit) {
  const mean = meanOf(feature, component);
  if (mean === null) return make("td", { class: "heat" }, "\u2013");
  const cell = make(
    "td",
    { class: `heat ${isBelow(feature, component) ? "below" : "above"}`, title: tellProfile(feature, component) },
    ...(feature.labels
      ? [make("small", {}, sayCategory(feature, component))]
      : [make("span", {}, sayShortValue(mean)), " ", make("small", {}, `\u00b1 ${sayShortValue(deviationOf(feature, component))}`)]),
  );
  cell.style.setProperty("--depth", `${(50 * depthOf(feature, component, limit)).toFixed(1)}%`);
  const tell = () => caption("profiles", tellProfile(feature, component));
  cell.addEventListener("pointerenter", tell);
  cell.addEventListener("click", tell);
  return cell;
}

function profileRow(feature, grouped, limit) {
  const party = grouped || data.features.every((one) => one.party === feature.party) ? null : make("small", {}, nameOf(feature.party));
  const [centre, spread] = feature.everyone ?? [];
  const everyone = feature.labels ? [make("small", {}, sayCategory(feature, null))] : feature.everyone ? [make("span", {}, sayShortValue(centre)), " ", make("small", {}, `\u00b1 ${sayShortValue(spread)}`)] : ["\u2013"];
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, make("span", {}, ownName(feature)), party),
    ...components.map((component) => profileCell(feature, component, limit)),
    make("td", {}, ...everyone),
    make("td", { class: "spare" }, feature.nats === null ? "\u2013" : feature.nats.toFixed(2)),
  );
}

function profileHead() {
  const most = Math.max(...data.weights);
  const heads = components.map((component) => {
    const width = (100 * data.weights[component]) / most;
    const bar = draw("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { fill: componentColour(component), width, height: 6 }));
    const name = make("span", { class: nComponents > 6 ? "unsaid" : "said" }, "component ");
    return make("th", { scope: "col", class: "component" }, name, String(component), make("small", {}, sayShare(data.weights[component])), bar);
  });
  return make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Column"), ...heads, make("th", { scope: "col" }, "everyone"), make("th", { scope: "col", class: "spare" }, "tells (nats)")));
}

/** Features that are chosen: the most telling ones, those of one party, or all of them by party. */
function chosenFeatures(choice) {
  if (choice === "top") return [[null, data.ranked.slice(0, TOP_COLUMNS)]];
  const held = new Map();
  data.features.forEach((feature, number) => {
    if (choice === "all" || Number(choice) === feature.party) held.set(feature.party, [...(held.get(feature.party) ?? []), number]);
  });
  return [...held].sort(([one], [other]) => one - other);
}

function showProfiles() {
  const limit = farthest();
  const bodies = chosenFeatures(find("#columns").value).map(([party, numbers]) => {
    const head = party === null ? null : make("tr", { class: "party" }, make("th", { scope: "rowgroup", colspan: nComponents + 3 }, nameOf(party)));
    return make("tbody", {}, head, ...numbers.map((number) => profileRow(data.features[number], party !== null, limit)));
  });
  const many = find("#columns").value === "all" && data.features.length > 2 * TOP_COLUMNS;
  find("#profiles .scroll").classList.toggle("whole", !many);
  const drawn = make("table", { class: nComponents > 6 ? "profiles many" : "profiles" }, profileHead(), ...bodies);
  drawn.style.setProperty("--name", `${Math.min(16, Math.max(...data.features.map((feature) => ownName(feature).length)))}ch`);
  find("#profiles .scroll").replaceChildren(drawn);
}

// A map of parties and columns

/** One panel of the map: a row for each party, a cell for each name. */
function mapPanel(component, names, parties, cell, limit) {
  const places = new Map(names.map((name, place) => [name, place]));
  const rows = new Map(parties.map((party, place) => [party, place]));
  return data.features.map((feature) => {
    const [x, y] = [places.get(ownName(feature)) * cell.width, rows.get(feature.party) * cell.height];
    const fill = isBelow(feature, component) ? "var(--negative)" : "var(--positive)";
    const shape = draw("rect", { class: "pair", x, y, width: cell.width, height: cell.height, fill, "fill-opacity": depthOf(feature, component, limit).toFixed(3) });
    shape.append(draw("title", {}, tellProfile(feature, component)));
    const tell = () => caption("profiles", tellProfile(feature, component));
    shape.addEventListener("pointerenter", tell);
    shape.addEventListener("click", tell);
    return shape;
  });
}

function paintMap(width) {
  const names = sharedNames();
  const parties = [...new Set(data.features.map((feature) => feature.party))].sort((one, other) => one - other);
  const limit = farthest();
  const texts = parties.map((party) => shortenName(data.agents[party].name, 14));
  const left = Math.max(...texts.map((text) => text.length)) * 6.8 + 10;
  const high = Math.min(12, Math.max(...names.map((name) => name.length))) * 6.4 + 10;
  const gap = 18;
  const most = Math.max(1, Math.min(nComponents, Math.floor((width - left + gap) / (names.length * 17 + gap))));
  const beside = Math.ceil(nComponents / Math.ceil(nComponents / most));
  const cell = { width: Math.min(44, (width - left - gap * (beside - 1)) / beside / names.length), height: parties.length > 30 ? 10 : 18 };
  const panel = { width: names.length * cell.width + gap, height: 22 + high + parties.length * cell.height + 14 };
  const groups = components.map((component) => {
    const [column, row] = [component % beside, Math.floor(component / beside)];
    const heads = names.map((name, place) => {
      const x = (place + 0.5) * cell.width + 4;
      return draw("text", { class: "quiet", x, y: -4, transform: `rotate(-90 ${x} -4)` }, shortenName(name, 12));
    });
    const named = column || parties.length > 30 ? [] : texts.map((text, place) => draw("text", { x: -6, y: (place + 0.5) * cell.height + 4, "text-anchor": "end" }, text));
    const title = `component ${component}: ${sayShare(data.weights[component])}`;
    return draw(
      "g",
      { transform: `translate(${left + column * panel.width} ${row * panel.height + 22 + high})` },
      draw("text", { class: "number", x: 0, y: -high - 6 }, names.length * cell.width > 110 ? title : String(component)),
      ...heads,
      ...named,
      ...mapPanel(component, names, parties, cell, limit),
    );
  });
  const label = `Map of ${sayMany(parties.length, "party", "parties")} and ${sayMany(names.length, "column")} for each component; the table below has its numbers.`;
  return canvas(width, Math.ceil(nComponents / beside) * panel.height, label, ...groups);
}

function addProfiles() {
  const shared = sharedNames().length > 0;
  const left = data.n_columns - data.features.length;
  about(
    "profiles",
    "What the rows of each component have, on average, in the units of the columns. Blue is above everyone, orange below, the stronger the farther.",
    data.features.some((feature) => feature.labels) ? "Of categories, a cell has the one whose share is farthest above everyone's; everyone has the most common one." : "",
    shared ? "The map has a row for each party; point at a cell, or tap it." : "",
    left ? `${sayMany(left, "column")} that tell least are left out.` : "",
  );
  const holders = [...new Set(data.features.map((feature) => feature.party))].sort((one, other) => one - other);
  const counts = holders.map((party) => data.features.filter((feature) => feature.party === party).length);
  const few = data.features.length <= TOP_COLUMNS;
  const options = [...(few ? [] : [["top", `the ${TOP_COLUMNS} that tell most`]]), ["all", `all ${data.features.length}, by party`]];
  const single = holders.length === 1 || Math.max(...counts) === 1;
  setOptions(find("#columns"), [...options, ...(single ? [] : holders.map((party) => [party, data.agents[party].name, "columns of one party"]))], few ? "all" : "top");
  addColours(shared ? 1 : 0.5);
  if (shared) addFigure("profiles", paintMap);
  else find("#profiles .plot").remove();
  find("#columns").addEventListener("change", showProfiles);
  showProfiles();
  caption("profiles", tellProfile(data.features[data.ranked[0]], 0));
}

// Importance

/** Bars with names; `items` are {name, short, nats, error}: where there is no room for a name, the short one. */
function paintBars(items, title, width, top) {
  const pitch = 22;
  const longest = Math.max(...items.map((item) => item.name.length));
  const fits = longest <= 26 && 10 + 6.8 * longest <= 0.42 * width;
  const names = items.map((item) => (fits ? item.name : item.short ?? item.name));
  const room = Math.min(0.42 * width, 10 + 6.8 * Math.max(...names.map((name) => Math.min(26, name.length))));
  const x = scale(0, data.entropy || 1, room, width - 44);
  const bars = items.flatMap(({ name, nats, error }, number) => {
    const y = top + 20 + number * pitch;
    const bar = draw("rect", { class: "telling", x: room, y: y + 3, width: Math.max(0.5, x(nats) - room), height: pitch - 8 });
    bar.append(draw("title", {}, `${name}: ${say(nats, 3)} nats`));
    const spread = error ? draw("line", { class: "axis", x1: x(Math.max(0, nats - 2 * error)), x2: x(nats + 2 * error), y1: y + 10, y2: y + 10 }) : null;
    return [
      draw("text", { x: room - 6, y: y + 14, "text-anchor": "end" }, shortenName(names[number], Math.max(7, Math.floor((room - 8) / 6.8)))),
      bar,
      ...(spread === null ? [] : [spread]),
      draw("text", { class: "quiet", x: (x(nats) > x(data.entropy) - 36 ? x(data.entropy) : x(nats + 2 * (error ?? 0))) + 5, y: y + 14 }, nats.toFixed(2)),
    ];
  });
  const height = 20 + items.length * pitch;
  const end = draw("line", { class: "cursor", x1: x(data.entropy), x2: x(data.entropy), y1: top + 20, y2: top + height });
  return { height, children: [draw("text", { class: "number", x: 0, y: top + 12 }, title), end, ...bars] };
}

function addImportance() {
  const named = (feature) => (ownName(feature) === feature.name && parties.length > 1 ? `${feature.name} (${data.agents[feature.party].name})` : feature.name);
  const ofColumns = data.ranked.map((number) => data.features[number]).filter((feature) => feature.nats !== null).map((feature) => ({ name: named(feature), short: feature.name, nats: feature.nats }));
  const ofParties = data.party_nats.map(([nats, error], number) => ({ name: data.agents[number].name, nats, error })).sort((one, other) => other.nats - one.nats);
  const several = parties.length > 1 && parties.some((party) => party.columns > 1);
  about(
    "importance",
    nComponents === 1
      ? "There is one component, so nothing tells components apart."
      : !data.entropy ? "Too few rows to tell."
      : `How much a look at some columns of a row tells about its component, in nats. The dotted line is all that there is to tell, ${say(data.entropy, 3)}.`,
    several && data.entropy ? "A party's columns are taken together; columns may tell the same, so they do not add up." : "",
  );
  if (nComponents === 1 || !data.entropy) {
    find("#importance .choices").remove();
    find("#importance figure").remove();
    return;
  }
  const largest = Math.max(ofColumns.length, several ? ofParties.length : 0);
  if (largest > TOP_BARS) setOptions(find("#telling"), [[TOP_BARS, `the ${TOP_BARS} that tell most`], [largest, "all"]]);
  else find("#importance .choices").remove();
  const figure = addFigure("importance", (width) => {
    const most = largest > TOP_BARS ? Number(find("#telling").value) : largest;
    const upper = several ? paintBars(ofParties.slice(0, most), "Parties", width, 0) : { height: -16, children: [] };
    const lower = paintBars(ofColumns.slice(0, most), "Columns", width, upper.height + 16);
    const label = `Information about the component: most from ${ofColumns[0].name}, ${say(ofColumns[0].nats, 3)} nats.`;
    return canvas(width, upper.height + 16 + lower.height + 6, label, ...upper.children, ...lower.children);
  });
  find("#telling")?.addEventListener("change", () => figure.redraw());
}
