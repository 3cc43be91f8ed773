// The cards about features: one, and two.

// One feature

/** Density of a component at a place from 0 to 1 in the picture. */
function density(feature, component, place) {
  const deviation = feature.deviations[component];
  if (feature.means[component] === null) return 0;
  if (feature.curves) {
    const curve = feature.curves[component];
    const at = Math.max(0, Math.min(1, place)) * (curve.length - 1);
    const left = Math.min(Math.floor(at), curve.length - 2);
    return data.weights[component] * (curve[left] + (at - left) * (curve[left + 1] - curve[left]));
  }
  const distance = (place - feature.means[component]) / deviation;
  return (data.weights[component] * Math.exp(-0.5 * distance * distance)) / (deviation * Math.sqrt(2 * Math.PI));
}

function inUnits(feature, place) {
  return feature.limits[0] + place * (feature.limits[1] - feature.limits[0]);
}

/** A component's line, set off from what is under it. */
function outline(d, component) {
  const look = { class: "curve", d, stroke: componentColour(component), "stroke-dasharray": componentDash(component) };
  return [draw("path", { class: "casing", d }), draw("path", look)];
}

function emptyFigure(width, text) {
  return canvas(width, 60, text, draw("text", { x: width / 2, y: 34, "text-anchor": "middle" }, text));
}

function legend(id, shown, describe) {
  find(`#${id} .legend`).replaceChildren(
    ...shown.map((component) => {
      const dash = componentDash(component);
      const sample = draw("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" });
      sample.append(draw("line", { class: "curve", stroke: componentColour(component), "stroke-dasharray": dash, x1: 0, x2: 28, y1: 5, y2: 5 }));
      return make("span", {}, sample, describe(component));
    }),
  );
}

/** Bars of the rows' shares of categories, with a mark for the share in each component. */
function paintCategories(feature, width) {
  const shown = components.filter((component) => feature.means[component] !== null);
  const [row, left, right] = [22, Math.min(0.4 * width, 170), width - 50];
  const x = scale(0, 1, left, right);
  const parts = feature.labels.flatMap((name, number) => {
    const top = 6 + row * number;
    const share = feature.shares[number];
    const text = name.length > 24 ? `${name.slice(0, 23)}\u2026` : name;
    return [
      draw("text", { x: left - 6, y: top + 13, "text-anchor": "end" }, text),
      draw("rect", { class: "bars", x: left, y: top, width: Math.max(0, x(share) - left), height: row - 5 }),
      draw("text", { x: right + 6, y: top + 13 }, sayShare(share)),
      ...shown.map((component) => {
        const at = x(feature.component_shares[component][number]);
        return draw("line", { class: "curve", stroke: componentColour(component), x1: at, x2: at, y1: top - 1, y2: top + row - 4 });
      }),
    ];
  });
  const label = `Shares of the categories of ${feature.name} in all rows, and in ${sayMany(shown.length, "component")}.`;
  return canvas(width, row * feature.labels.length + 12, label, ...parts);
}

function paintMarginal(width) {
  const feature = data.features[Number(find("#feature").value)];
  if (feature && feature.labels) return paintCategories(feature, width);
  if (!feature || !feature.limits) return emptyFigure(width, "too few values to be shown");
  const span = feature.limits[1] - feature.limits[0];
  const nBins = feature.counts.length;
  const bars = feature.counts.map((count) => (count * nBins) / Math.max(1, feature.observed));
  const shown = components.filter((component) => feature.means[component] !== null);
  const grid = Array.from({ length: 301 }, (_, number) => number / 300);
  const places = [...grid, ...shown.map((component) => feature.means[component])].filter((place) => place >= 0 && place <= 1).sort((one, other) => one - other);
  const parts = components.map((component) => places.map((place) => density(feature, component, place)));
  const total = places.map((_, number) => parts.reduce((sum, part) => sum + part[number], 0));
  const tallest = Math.max(...bars);
  const top = 1.08 * Math.max(tallest, Math.min(Math.max(...total), tallest ? 2 * tallest : Infinity)) || 1;
  const box = frame(width, Math.min(400, 0.8 * width), leftOf(0, top / span));
  const x = scale(0, 1, box.left, box.right);
  const y = scale(0, top, box.bottom, box.top);
  const curve = (values) => path(places.map((place, number) => [x(place), y(values[number])]));
  const numbers = shown.filter((component) => feature.means[component] >= 0 && feature.means[component] <= 1).map((component) => {
    const peak = Math.min(top, density(feature, component, feature.means[component]));
    return draw("text", { class: "halo number", x: x(feature.means[component]), y: Math.max(box.top + 12, y(peak) - 5), "text-anchor": "middle" }, String(component));
  });
  const label = `Histogram of ${feature.name} with the fitted density and those of ${sayMany(shown.length, "component")}.`;
  return canvas(
    width,
    box.height,
    label,
    axes(box, { low: feature.limits[0], high: feature.limits[1], name: feature.name }, { low: 0, high: top / span, name: "density" }),
    clip(
      box,
      ...bars.map((bar, number) => draw("rect", { class: "bars", x: x(number / nBins), y: y(bar), width: x(1 / nBins) - x(0), height: Math.max(0, y(0) - y(bar)) })),
      draw("path", { class: "line", d: curve(total) }),
      ...shown.flatMap((component) => outline(curve(parts[component]), component)),
    ),
    ...numbers,
  );
}

function tellMarginal() {
  const feature = data.features[Number(find("#feature").value)];
  if (!feature || !feature.limits) {
    caption("marginals", "");
    legend("marginals", [], String);
    return;
  }
  const gaps = data.rows - feature.observed;
  if (feature.labels) {
    caption(
      "marginals",
      `${feature.name}, held by ${nameOf(feature.party)}: categories. Bars are shares of the rows, lines those within the components.` +
        (gaps ? ` ${sayShare(gaps / data.rows)} are missing.` : ""),
    );
    const many = components.filter((component) => feature.means[component] !== null);
    legend("marginals", many, (component) => {
      const shares = feature.component_shares[component];
      const largest = shares.indexOf(Math.max(...shares));
      return `component ${component}: ${feature.labels[largest]} ${sayShare(shares[largest])}`;
    });
    return;
  }
  const inside = feature.counts.reduce((sum, count) => sum + count, 0);
  const hidden = components.filter((component) => feature.means[component] === null).length;
  caption(
    "marginals",
    `${feature.name}, held by ${nameOf(feature.party)}${feature.family ? ` (${feature.family})` : ""}. ` +
      `${sayShare(1 - inside / Math.max(1, feature.observed))} of the values lie outside, or in bins with fewer than ${data.smallest} rows, which are left empty.` +
      (gaps ? ` ${sayShare(gaps / data.rows)} are missing.` : "") +
      (hidden ? ` ${sayMany(hidden, "component")} with fewer than ${data.smallest} values not drawn.` : ""),
  );
  const shown = components.filter((component) => feature.means[component] !== null);
  legend("marginals", shown, (component) => {
    const [mean, deviation] = [inUnits(feature, feature.means[component]), feature.deviations[component] * (feature.limits[1] - feature.limits[0])];
    return `component ${component}: mean ${say(mean)}, deviation ${say(deviation)}`;
  });
}

function addMarginals() {
  const [party, select] = [find("#party"), find("#feature")];
  const held = new Set(data.features.map((feature) => feature.party));
  setOptions(party, [...held].sort((one, other) => one - other).map((number) => [number, data.agents[number].name]), data.features[data.ranked[0]].party);
  const offer = (chosen) => {
    const offered = data.features.flatMap((feature, number) => (feature.party === Number(party.value) ? [[number, feature.name]] : []));
    setOptions(select, offered, chosen);
  };
  offer(data.ranked[0]);
  if (data.features.length < data.n_columns) {
    about("marginals", find("#marginals .about").textContent, `Offered are the ${data.features.length} of ${sayCount(data.n_columns)} features that tell most about the component.`);
  }
  const figure = addFigure("marginals", paintMarginal);
  const show = () => {
    tellMarginal();
    figure.redraw();
  };
  party.addEventListener("change", () => {
    offer();
    show();
  });
  select.addEventListener("change", show);
  tellMarginal();
}

// Two features

/** Whether a feature has numbers that can be more or less; categories only have an order for the computer. */
function isNumber(place) {
  return !data.features[place].labels;
}

/** Correlation of two features in a component; 0 if they are in different hubs. */
function correlation(one, other, component) {
  const block = data.features[one].hub === data.features[other].hub ? data.correlations[data.features[one].hub] : null;
  if (!block) return 0;
  const [small, large] = [block.features.indexOf(one), block.features.indexOf(other)].sort((a, b) => a - b);
  const values = block.values[component % block.values.length];
  return values[(large * (large - 1)) / 2 + small];
}

/** Points of an ellipse of `size` standard deviations. */
function ellipse(across, up, component, size) {
  const [one, other] = [data.features[across], data.features[up]];
  const rho = Math.max(-1, Math.min(1, correlation(across, up, component)));
  return Array.from({ length: 73 }, (_, number) => {
    const angle = (number * Math.PI) / 36;
    const [u, v] = [Math.cos(angle), rho * Math.cos(angle) + Math.sqrt(1 - rho * rho) * Math.sin(angle)];
    return [one.means[component] + size * one.deviations[component] * u, other.means[component] + size * other.deviations[component] * v];
  });
}

function paintCells(across, up, x, y) {
  const digits = data.shades[`${Math.min(across, up)},${Math.max(across, up)}`];
  if (!digits) return [];
  const n = data.n_pair_bins;
  return [...digits].flatMap((digit, place) => {
    if (digit === "0") return [];
    const [first, second] = [Math.floor(place / n), place % n];
    const [column, row] = across < up ? [first, second] : [second, first];
    const cell = { x: x(column / n), y: y((row + 1) / n), width: x(1 / n) - x(0) + 0.3, height: y(0) - y(1 / n) + 0.3 };
    return [draw("rect", { class: "cell", opacity: (Number(digit) * 0.06).toFixed(2), ...cell })];
  });
}

function drawnIn(across, up) {
  return components.filter((component) => data.features[across].means[component] !== null && data.features[up].means[component] !== null);
}

function paintPair(width) {
  const [across, up] = [Number(find("#across").value), Number(find("#up").value)];
  const [one, other] = [data.features[across], data.features[up]];
  if (data.features.filter((_, place) => isNumber(place)).length < 2) return emptyFigure(width, "a table of one column of numbers has no pairs");
  if (across === up) return emptyFigure(width, "choose two different features");
  if (!one.limits || !other.limits) return emptyFigure(width, "too few values to be shown");
  const box = frame(width, Math.min(420, 0.95 * width), leftOf(...other.limits));
  const x = scale(0, 1, box.left, box.right);
  const y = scale(0, 1, box.bottom, box.top);
  const shown = drawnIn(across, up);
  const outlines = shown.flatMap((component) =>
    [1, 2].flatMap((size) => outline(path(ellipse(across, up, component, size).map(([u, v]) => [x(u), y(v)])), component)),
  );
  const numbers = shown.map((component) =>
    draw("text", { class: "halo number", x: x(one.means[component]), y: y(other.means[component]) + 4, "text-anchor": "middle" }, String(component)),
  );
  const label = `${other.name} against ${one.name}: ellipses of ${sayMany(shown.length, "component")} over the density of the rows.`;
  return canvas(
    width,
    box.height,
    label,
    axes(box, { low: one.limits[0], high: one.limits[1], name: one.name }, { low: other.limits[0], high: other.limits[1], name: other.name }),
    clip(box, ...paintCells(across, up, x, y), ...outlines, ...numbers),
  );
}

function tellPair() {
  const [across, up] = [Number(find("#across").value), Number(find("#up").value)];
  const [one, other] = [data.features[across], data.features[up]];
  if (across === up || !one.limits || !other.limits) {
    caption("pairs", "");
    legend("pairs", [], String);
    return;
  }
  const kept = data.shades[`${Math.min(across, up)},${Math.max(across, up)}`];
  caption(
    "pairs",
    `Across ${one.name}, up ${other.name}. ` +
      (one.hub === other.hub ? "" : "They are in different blocks, so that no component correlates them. ") +
      (kept
        ? `Cells with fewer than ${data.smallest} rows are left empty.`
        : "Ellipses only: of many features, rows are counted for pairs of those that tell most about the component."),
  );
  legend("pairs", drawnIn(across, up), (component) => `component ${component}: correlation ${say(correlation(across, up, component), 2)}`);
}

function addPairs() {
  const selects = [find("#across"), find("#up")];
  const ranked = data.ranked.filter(isNumber);
  const [first, second] = [ranked[0], ranked[1] ?? ranked[0]];
  const several = new Set(data.features.map((feature) => feature.party)).size > 1;
  const options = data.features.map((feature, number) => (several ? [number, feature.name, nameOf(feature.party)] : [number, feature.name])).filter(([number]) => isNumber(number));
  options.sort(([one], [other]) => data.features[one].party - data.features[other].party || one - other);
  setOptions(selects[0], options, first);
  setOptions(selects[1], options, second);
  const figure = addFigure("pairs", paintPair);
  for (const select of selects) {
    select.addEventListener("change", () => {
      tellPair();
      figure.redraw();
    });
  }
  tellPair();
}
