// Several models side by side.

const data = JSON.parse(find("#data").textContent);
const models = data.names.map((_, number) => number);
const onRows = data.agreement !== null;

/** As it is told: models that differ by rounding are equally good. */
function toldCriterion(value) {
  return Math.round(10 * value) / 10;
}

/** A bar for a number, beside the largest of all models. */
function amountBar(key, facts) {
  const most = Math.max(1, ...data.facts.map((one) => one[key]));
  const bar = draw("rect", { class: "cell", opacity: 0.55, width: (100 * facts[key]) / most, height: 4 });
  return draw("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, bar);
}

function criterion(key) {
  const best = Math.min(...data.facts.map((facts) => toldCriterion(facts[key])));
  return (facts) => [sayCount(toldCriterion(facts[key])), data.same_columns && toldCriterion(facts[key]) === best ? make("small", {}, "best") : null];
}

/** What is told of every model: [name, contents of a cell]. */
function lines() {
  const likelihood = onRows ? "log_likelihood" : "fit_log_likelihood";
  return [
    ["Verdict", (facts) => [colourSign(facts.verdict)]],
    ["Components", (facts) => [sayCount(facts.components)]],
    ["Parties", (facts) => [sayCount(facts.parties)]],
    ["Columns", (facts) => [sayCount(facts.columns)]],
    ["Parameters", (facts) => [sayCount(facts.parameters)]],
    ["Iterations", (facts) => [sayCount(facts.iterations), make("small", {}, facts.converged ? "converged" : "not converged")]],
    ["Log-likelihood per row", (facts) => [say(facts[likelihood], 6), onRows ? null : make("small", {}, "of its own fit")]],
    ...(onRows ? [["BIC", criterion("bic")], ["AIC", criterion("aic")]] : []),
    ["Sent", (facts) => [sayBytes(facts.bytes), amountBar("bytes", facts)]],
    ["Messages", (facts) => [sayCount(facts.messages)]],
  ];
}

function addModels() {
  about(
    "models",
    onRows ? `Log-likelihood, BIC and AIC are those of the same ${sayCount(data.rows)} rows; of BIC and AIC, the smaller is the better.` : "Without a table, the log-likelihood is that of each model's own fit.",
    data.refusal || data.same_columns ? data.refusal : "The models have different columns: their log-likelihoods and criteria do not compare.",
  );
  const heads = data.names.map((name) => make("th", { scope: "col" }, name));
  const rows = lines().map(([name, cells]) =>
    make("tr", {}, make("th", { scope: "row" }, name), ...data.facts.map((facts) => make("td", { class: "amount" }, ...cells(facts)))),
  );
  find("#models .scroll").append(
    make("table", { class: "pinned" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, ""), ...heads)), make("tbody", {}, ...rows)),
  );
}

function addAgreement() {
  if (!onRows) {
    about("agreement", "To see how far labels agree, give the program a table of five rows or more with the models' columns.");
    find("#agreement .scroll").remove();
    return;
  }
  about("agreement", `Adjusted Rand index of the labels of ${sayCount(data.rows)} rows: 1 if two models group the rows in the same way, 0 if they agree by chance only.`);
  const rows = models.map((one) => {
    const cells = models.map((other) => {
      const value = data.agreement[one][other];
      const cell = make("td", { class: "heat above" }, value.toFixed(3));
      cell.style.setProperty("--depth", `${(50 * Math.max(0, value)).toFixed(1)}%`);
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row" }, data.names[one]), ...cells);
  });
  const heads = data.names.map((name) => make("th", { scope: "col" }, name));
  find("#agreement .scroll").append(
    make("table", { class: "pinned" }, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, ""), ...heads)), make("tbody", {}, ...rows)),
  );
}

function paintTrajectories(width) {
  const known = data.trajectories.flat().filter((bound) => bound !== null);
  const spread = Math.max(...known) - Math.min(...known) || Math.abs(known[0]) / 10 || 1;
  const [low, high] = [Math.min(...known) - 0.05 * spread, Math.max(...known) + 0.05 * spread];
  const last = Math.max(2, ...data.trajectories.map((bounds) => bounds.length));
  const box = frame(width, Math.min(300, 0.75 * width), leftOf(low, high));
  const x = scale(1, last, box.left, box.right);
  const y = scale(low, high, box.bottom, box.top);
  const lines = data.trajectories.flatMap((bounds, number) => {
    const points = bounds.flatMap((bound, place) => (bound === null ? [] : [[x(place + 1), y(bound)]]));
    if (!points.length) return [];
    const look = { class: "curve", d: path(points), stroke: componentColour(number), "stroke-dasharray": componentDash(number) };
    const [cx, cy] = points[points.length - 1];
    return [draw("path", look), draw("circle", { fill: componentColour(number), cx, cy, r: 3.5 })];
  });
  const label = `Log-likelihood per row in each iteration, of ${sayMany(models.length, "model")}.`;
  return canvas(width, box.height, label, axes(box, { low: 1, high: last, name: "iteration", whole: true }, { low, high, name: "log-likelihood per row" }), ...lines);
}

function addTrajectories() {
  if (!data.same_columns || !data.trajectories.flat().length) {
    find("#trajectories").remove();
    return;
  }
  about("trajectories", "As the parties saw it during each fit: the mean over the roots, with batches the free energy.");
  addFigure("trajectories", paintTrajectories);
  find("#trajectories .legend").append(
    ...models.map((number) => {
      const sample = draw("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" });
      sample.append(draw("line", { class: "curve", stroke: componentColour(number), "stroke-dasharray": componentDash(number), x1: 0, x2: 28, y1: 5, y2: 5 }));
      return make("span", {}, sample, data.names[number]);
    }),
  );
}

function addVerdicts() {
  find("#verdicts .verdicts").append(
    ...models.map((number) => {
      const { verdict } = data.facts[number];
      const says = verdict === null ? NOT_JUDGED : `${VERDICTS[verdict]}.`;
      const list = data.findings[number].length ? make("ul", { class: "findings" }, ...findingsList(data.findings[number])) : null;
      return make("div", {}, make("p", {}, make("strong", {}, `${data.names[number]} `), colourSign(verdict), ` ${says}`), list);
    }),
  );
}

function addFrame() {
  addHead(data.title, `${sayMany(models.length, "model")}${onRows ? `, compared on the same ${sayCount(data.rows)} rows` : ""}.`);
  find("#privacy p").textContent = `This page has numbers about models, and no rows. It was made by vpem ${data.version}, and it asks nothing of any network.`;
}

for (const add of [addModels, addAgreement, addTrajectories, addVerdicts, addFrame, arrange]) add();
