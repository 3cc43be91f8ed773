// The cards about the fit: how it went, the roots' own estimates, repairs.

// Agreement of the roots

/** What the largest difference between two roots' responsibilities for one row means. */
function sayDisagreement(size) {
  if (size === null) return "How far they are apart is not known.";
  if (size === 0) return "They are the same.";
  if (size < 1e-6) return "They agree to a millionth.";
  if (size < 0.01) return "After finitely many rounds they differ a little.";
  if (size < 0.5) return "They differ: for some rows, how likely a component is depends on the root. More rounds bring them together.";
  return "They differ widely: there are rows that one root assigns to another component than a second root does. More rounds, or a graph with more links, bring them together.";
}

function addAgreement() {
  if (isPart) {
    find("#agreement").remove();
    return;
  }
  const spread = Math.max(
    ...components.map((component) => {
      const own = data.hub_weights.map((weights) => weights[component]);
      return Math.max(...own) - Math.min(...own);
    }),
  );
  about(
    "agreement",
    isStar ? "The server's sum is the same for all, and so the roots agree." : `Every root keeps its own estimates. ${sayDisagreement(data.disagreement)}`,
    data.disagreement ? `The largest difference between two roots' responsibilities for a row is ${say(data.disagreement, 2)}.` : "",
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
    `${isPart ? "As this party saw it" : "Mean over the roots"}, in each iteration${data.scaled ? ", of columns that each party has divided by their deviations" : ""}.`,
    data.gain === null ? "" : `One more exact step would gain ${say(data.gain, 2)} per row.`,
    data.repairs.length ? "" : "No component collapsed or starved.",
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

// Repairs

function addRepairs() {
  if (!data.repairs.length) {
    find("#repairs").remove();
    return;
  }
  about("repairs", "Components that collapsed (no room left for a covariance) or starved (no rows left).");
  const rows = data.repairs.map(([iteration, component, party, reason, restarted]) => [
    String(iteration), String(component), party, reason, restarted ? "restarted on another row" : "kept as it was",
  ]);
  find("#repairs .scroll").append(table(["Iteration", "Component", "Found by", "Reason", "What was done"], rows));
}
