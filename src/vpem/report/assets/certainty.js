// The card about how sure the model is of the labels.

function sayBounded([words, share]) {
  return `${words ? `${words} ` : ""}${sayShare(share)}`;
}

/** Rows by their largest responsibility, the components on top of each other. */
function paintCertainty(width) {
  const { edges, counts } = data.certainty;
  const totals = edges.slice(1).map((_, bin) => counts.reduce((sum, own) => sum + own[bin], 0) / data.rows);
  const first = Math.max(0, totals.findIndex((total) => total > 0));
  const low = Math.min(edges[first], 0.5);
  const top = 1.05 * Math.max(...totals) || 1;
  const box = frame(width, Math.min(240, 0.65 * width), leftOf(0, top));
  const x = scale(low, 1, box.left, box.right);
  const y = scale(0, top, box.bottom, box.top);
  const bars = edges.slice(0, -1).flatMap((edge, bin) => {
    let below = 0;
    return components.flatMap((component) => {
      const share = counts[component][bin] / data.rows;
      if (!share) return [];
      const bar = draw("rect", { class: "layer", fill: componentColour(component), x: x(edge), y: y(below + share), width: x(edges[bin + 1]) - x(edge), height: y(below) - y(below + share) });
      bar.append(draw("title", {}, `component ${component}, ${sayTick(edge, 0.05)} to ${sayTick(edges[bin + 1], 0.05)}: ${sayShare(share)} of the rows`));
      below += share;
      return [bar];
    });
  });
  const label = `Rows by the largest probability of a component: ${sayBounded(data.certainty.sure)} are above 95%.`;
  return canvas(width, box.height, label, axes(box, { low, high: 1, name: "largest probability of a component" }, { low: 0, high: top, name: "share of the rows" }), ...bars);
}

function addCertainty() {
  if (data.certainty === null) {
    about("certainty", "Too few rows to tell.");
    find("#certainty figure").remove();
    find("#certainty .scroll").remove();
    return;
  }
  const { sure, mean, left_out: leftOut, confused } = data.certainty;
  about(
    "certainty",
    `For ${sayBounded(sure)} of the rows, one component has a probability above 95% under the model.`,
    `If the model is right, ${sayShare(mean)} of the labels are; a model that is wrong can be as sure. The verdict on the fit is ${data.verdict.colour === null ? "missing: it was not judged" : data.verdict.colour}.`,
  );
  addFigure("certainty", paintCertainty);
  caption(
    "certainty",
    (leftOut > 0 ? `${leftOut < 0.001 ? "Less than 0.1%" : sayShare(leftOut)} of the rows are in bars of fewer than ${data.smallest}, which are left out. ` : "") +
      (confused.length ? "" : `Components that are confused for fewer than ${data.smallest} rows are not listed.`),
  );
  const most = Math.max(0.0001, ...confused.map(([, , share]) => share));
  const bar = (share) =>
    draw("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { class: "cell", opacity: 0.55, width: (100 * share) / most, height: 4 }));
  if (!confused.length) {
    find("#certainty .scroll").remove();
    return;
  }
  const rows = confused.map(([one, other, share]) =>
    make("tr", {}, make("th", { scope: "row" }, `component ${one}`), make("td", {}, `component ${other}`), make("td", { class: "amount" }, sayShare(share), bar(share))),
  );
  const heads = ["Rows of", "labelled with", "expected share"].map((head) => make("th", { scope: "col" }, head));
  find("#certainty .scroll").append(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
}
