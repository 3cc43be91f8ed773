// The card about the blocks: where they lie in the covariances, and the correlations within one of them.

const MOST_SQUARES = 4000;
const SIDE = 360;
const MOST_NAMED = 40;
const LARGEST_CELL = 84;
const MOST_HEIGHT = 440;

/** Whether there is room to show how strongly the columns of a block correlate. */
function showsStrengths() {
  const entries = data.hubs.reduce((sum, hub, number) => sum + (data.correlations[number] ? hub.columns ** 2 : 0), 0);
  return data.features.length === data.n_columns && entries > 0 && entries <= MOST_SQUARES;
}

/** Squares of a block, [row, column, size, strength]: one for all, or one for each entry that is fitted. */
function blockSquares(number) {
  const { columns } = data.hubs[number];
  const block = data.correlations[number];
  if (block && !showsStrengths()) return [[0, 0, columns, 1]];
  const places = Array.from({ length: columns }, (_, place) => place);
  if (!block) return places.map((place) => [place, place, 1, 1]);
  const strength = (one, other) => data.weights.reduce((sum, weight, component) => sum + weight * Math.abs(correlation(one, other, component)), 0);
  return places.flatMap((row) =>
    places.map((column) => [row, column, 1, row === column ? 1 : (0.12 + 0.88 * strength(block.features[row], block.features[column])).toFixed(3)]),
  );
}

// One block

/** Features of a block that are drawn: as many as have room for their names. */
function shownIn(block) {
  return data.correlations[block] ? data.correlations[block].features.slice(0, MOST_NAMED) : [];
}

/** What is left of names without the words that all of them begin with. */
function withoutCommonStart(names) {
  let common = names[0];
  for (const name of names) while (!name.startsWith(common)) common = common.slice(0, -1);
  const start = common.search(/[^\s._:/-]*$/);
  return names.length > 1 && names.every((name) => name.length > start) ? names.map((name) => name.slice(start)) : names;
}

/** Correlation of two features in one component, or in the mean over all if there is none. */
function signedCorrelation(one, other, component) {
  if (component !== null) return correlation(one, other, component);
  return data.weights.reduce((sum, weight, each) => sum + weight * correlation(one, other, each), 0);
}

function chosenComponent() {
  return find("#of").value === "" ? null : Number(find("#of").value);
}

/** Below the diagonal one cell for each two features; a name stands at the end of its row, on top of its column. */
function paintBlock(block, left, width) {
  const features = shownIn(block);
  const names = withoutCommonStart(features.map((feature) => data.features[feature].name));
  const longest = Math.min(22, Math.max(...names.map((name) => name.length)));
  const room = Math.min(longest * 6.6 + 12, width * 0.45);
  const cell = Math.min(LARGEST_CELL, (width - room) / features.length, Math.max(30, MOST_HEIGHT / features.length));
  const start = left + Math.max(0, (width - room - cell * features.length) / 2);
  const named = cell >= 10;
  const children = features.flatMap((one, row) => {
    const y = row * cell + 1;
    const cells = features.slice(0, row).map((other, column) => {
      const value = signedCorrelation(one, other, chosenComponent());
      const x = start + column * cell;
      const colour = value < 0 ? "var(--negative)" : "var(--positive)";
      const place = draw("rect", { class: "pair", x, y, width: cell, height: cell, fill: colour, "fill-opacity": Math.min(1, Math.abs(value)).toFixed(3) });
      place.append(draw("title", {}, `${data.features[one].name} with ${data.features[other].name}: ${saySigned(value)}`));
      const text = cell >= 36 ? sayInCell(value) : cell >= 14 && Math.abs(value) >= 0.1 ? saySigned(value)[0] : "";
      const look = { class: `${Math.abs(value) > 0.6 ? "strong" : ""}${value > 0.85 ? " strongest" : ""}`, x: x + cell / 2, y: y + cell / 2 + 4, "text-anchor": "middle", "pointer-events": "none" };
      return text ? [place, draw("text", look, text)] : [place];
    });
    const text = shortenName(names[row], Math.max(7, Math.floor((room - 8) / 6.6)));
    const name = named ? draw("text", { x: start + row * cell + 4, y: y + cell / 2 + 4, "font-size": "11px" }, text) : null;
    return [...cells.flat(), ...(name === null ? [] : [name])];
  });
  return { height: features.length * cell + 2, children };
}

/** As +.25: a cell has no room for more. */
function sayInCell(value) {
  return saySigned(value).replace("0.", ".");
}

function saySigned(value) {
  return `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

function tellBlock() {
  const block = Number(find("#block").value);
  const features = shownIn(block);
  const pairs = features.flatMap((one, row) => features.slice(0, row).map((other) => [signedCorrelation(one, other, chosenComponent()), one, other]));
  const largest = pairs.reduce((best, pair) => (Math.abs(pair[0]) > Math.abs(best[0]) ? pair : best));
  const [value, one, other] = largest;
  const left = data.hubs[block].columns - features.length;
  caption(
    "covariances",
    `${nameOf(data.hubs[block].root)}: the strongest correlation is ${saySigned(value)}, of ${data.features[other].name} with ${data.features[one].name}. ` +
      "+ is in blue, \u2212 in orange." + (left ? ` ${sayMany(left, "column")} of the block not shown.` : ""),
  );
}

/** Where the blocks lie, and the block that is chosen beside or below. */
function paintCovariances(full, offered) {
  const total = data.n_columns;
  const beside = offered.length > 0 && full >= 700;
  const width = beside ? Math.floor(full * 0.45) : full;
  const nameOfHub = (hub) => data.agents[hub.root].name + (hub.members.length > 1 ? ` +${hub.members.length - 1}` : "");
  const wanted = Math.max(...data.hubs.map((hub) => shortenName(nameOfHub(hub), 18).length)) * 6.8 + 14;
  const gap = data.hubs.some((hub) => (hub.columns / total) * Math.min(width, SIDE) >= 14) ? Math.min(wanted, width * 0.35) : 0;
  const side = Math.min(width - gap - 2, SIDE);
  const left = gap + Math.max(0, (width - side - gap) / 2);
  const unit = side / total;
  let start = 0;
  const blocks = data.hubs.flatMap((hub, number) => {
    const [at, length] = [start * unit, hub.columns * unit];
    start += hub.columns;
    const names = hub.members.map((member) => data.agents[member].name).join(", ");
    const squares = blockSquares(number).map(([row, column, size, strength]) =>
      draw("rect", { x: left + at + column * unit, y: at + 1 + row * unit, width: size * unit, height: size * unit, "fill-opacity": strength }),
    );
    const edge = data.correlations[number] ? draw("rect", { class: "sign", "fill-opacity": 0, x: left + at, y: at + 1, width: length, height: length }) : null;
    const block = draw("g", { class: unit > 6 && !showsStrengths() ? "sign" : "", fill: hubColour(number) }, draw("title", {}, `${names}: ${sayMany(hub.columns, "column")}`), ...squares, edge);
    const text = shortenName(nameOfHub(hub), Math.max(7, Math.floor((gap - 12) / 6.8)));
    return length < 14 ? [block] : [block, draw("text", { x: left - 8, y: at + length / 2 + 5, "text-anchor": "end" }, text)];
  });
  const detail = offered.length ? paintBlock(Number(find("#block").value), beside ? width + 40 : 0, beside ? full - width - 40 : full) : { height: 0, children: [] };
  const below = beside ? 0 : side + 20;
  const label = `Block-diagonal matrix of ${sayMany(total, "column")} with ${sayMany(data.hubs.length, "block")}.`;
  return canvas(
    full,
    beside ? Math.max(side + 2, detail.height) : side + 2 + (detail.height ? detail.height + 18 : 0),
    label,
    draw("rect", { class: "axis", x: left, y: 1, width: side, height: side }),
    ...blocks,
    draw("g", { class: "block", transform: `translate(0 ${below})` }, ...detail.children),
  );
}

function addCovariances() {
  const offered = data.hubs.map((_, number) => number).filter((number) => shownIn(number).length > 1);
  const total = data.n_columns;
  const filled = data.hubs.reduce((sum, hub, number) => sum + (data.correlations[number] ? hub.columns ** 2 : hub.columns), 0);
  about(
    "covariances",
    `Each component's covariance is a matrix of ${sayCount(total)} times ${sayCount(total)} entries, here in the order of the hubs.`,
    filled < total * total
      ? `Only coloured entries are fitted, ${sayShare(filled / (total * total))} of all; the others are zero: within a component, columns of different blocks do not correlate.`
      : "All entries are fitted.",
    pools ? "A hub has the name of its root, and the number of the others." : "",
    showsStrengths() ? "The stronger the colour, the stronger two columns correlate, up or down, in the mean over the components." : "",
    offered.length ? "The second picture has the correlations within one block, with their signs." : "",
  );
  if (offered.length) {
    const first = data.features[data.ranked[0]].hub;
    setOptions(find("#block"), offered.map((number) => [number, nameOf(data.hubs[number].root)]), offered.includes(first) ? first : offered[0]);
    setOptions(find("#of"), [["", "all components, in the mean"], ...components.map((component) => [component, `component ${component}`])]);
  } else {
    find("#covariances .choices").remove();
    find("#covariances figcaption").remove();
  }
  const figure = addFigure("covariances", (full) => paintCovariances(full, offered));
  if (!offered.length) return;
  for (const select of [find("#block"), find("#of")]) {
    select.addEventListener("change", () => {
      tellBlock();
      figure.redraw();
    });
  }
  tellBlock();
}
