// The page: what it is about, the verdict, the facts, and the cards one after another.

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

// Verdict

const SEVERITIES = { red: "Serious", amber: "Check", note: "Note" };
const VERDICTS = {
  red: "Verdict: do not rely on this fit yet",
  amber: "Verdict: check this before you rely on the fit",
  green: "Verdict: nothing found that speaks against this fit",
};

function addVerdict() {
  if (data.verdict === null) {
    find("#verdict").remove();
    return;
  }
  const severities = Object.keys(SEVERITIES);
  const found = [...data.verdict].sort((one, other) => severities.indexOf(one.severity) - severities.indexOf(other.severity));
  const worst = found.length && found[0].severity !== "note" ? found[0].severity : "green";
  find("#verdict").setAttribute("data-colour", worst);
  find("#verdict h2").textContent = VERDICTS[worst];
  find("#verdict ul").append(
    ...found.map(({ severity, sentence, remedy }) =>
      make(
        "li",
        { "data-colour": severity },
        make("strong", {}, `${SEVERITIES[severity] ?? severity}: `),
        sentence,
        remedy ? make("span", { class: "remedy" }, `What to try: ${remedy}`) : null,
      ),
    ),
  );
  if (!found.length) find("#verdict ul").remove();
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

function addFacts() {
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
  find("#revealed").textContent = pools ? "Roots of hubs hold the columns of their members." : "Columns were not sent.";
}

// What is around the cards

function addFrame() {
  find("#title").textContent = data.title;
  find("#lead").textContent = parties.length === 1
    ? "One Gaussian mixture, fitted by one party."
    : `One Gaussian mixture, fitted by ${sayCount(parties.length)} parties that hold different columns of the same rows.`;
  find("#contents").append(
    ...[...document.querySelectorAll("section")].map((section) =>
      make("li", {}, make("a", { href: `#${section.id}` }, section.dataset.name ?? section.querySelector("h2").textContent)),
    ),
  );
  find("#privacy p").textContent =
    `No row of the data can be read from this page: limits of the figures are rounded quantiles, bins with fewer than ${data.smallest} rows ` +
    `are left empty, and components that stand for fewer are not drawn. It was made by vpem ${data.versions.vpem}, and it asks nothing of any network.`;
}

// Settings

function addSettings() {
  const versions = Object.entries(data.versions).map(([name, version]) => [`${name} version`, version]);
  find("#settings dl").append(
    ...[...data.settings, ...versions].map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
  );
}

/** Cards of two columns close up: each takes as many of the grid's small rows as it is high. */
function arrange() {
  const step = 4; // as in the style
  const cards = [...document.querySelectorAll("main > section")];
  const measure = (card) => card.style.setProperty("--rows", Math.ceil((card.offsetHeight + 16) / step));
  const observer = new ResizeObserver((entries) => requestAnimationFrame(() => entries.forEach(({ target }) => measure(target))));
  cards.forEach(measure);
  cards.forEach((card) => observer.observe(card));
}

const CARDS = [
  addVerdict, addFacts, // what it is, and whether to believe it
  addWeights, addMarginals, addPairs, addCovariances, // who the clusters are
  addAgreement, addTrajectory, addRepairs, // how sure
  addNetwork, addTraffic, addSettings,
];
for (const add of [...CARDS, addFrame, arrange]) add();
