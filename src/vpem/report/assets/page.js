// The page: what it is about, the facts, and the cards one after another.

const data = JSON.parse(find("#data").textContent);
const nComponents = data.weights.length;
const components = data.weights.map((_, component) => component);
const parties = data.agents.filter((agent) => agent.hub !== null);
const boundName = data.batches ? "free energy per row" : "log-likelihood per row";
const isStar = data.agents.length > parties.length;
const isPart = data.others.length > 0; // of a study on a real network, as one party knows it
const pools = data.hubs.some((hub) => hub.members.length > 1);

/** A party in a sentence: a bare number says what it is. */
function nameOf(number) {
  const { name } = data.agents[number];
  return /^\d+$/.test(name) ? `party ${name}` : name;
}

// In short

function sayParties() {
  if (isPart) return `Also ${data.others.join(", ")}; this page is about the columns of ${nameOf(0)} alone.`;
  if (isStar) return "A server adds what they contribute.";
  return parties.length === 1 ? "It holds all columns." : "They add up with their neighbours; there is no server.";
}

function sayEnd() {
  if (data.converged) return `Converged: the last one changed less than ${say(data.tol)} per row.`;
  if (!data.iterations) return "The model is at its start.";
  if (data.gain === null) return "Steps of a stream, which has no end.";
  return "Not converged: it stopped before the changes were small.";
}

function sayMissing() {
  if (!(data.missing > 0)) return "";
  const own = data.row_counts === null || data.row_counts.gaps.length > 0;
  const absent = data.row_counts?.parties.some((party) => party[1] !== data.row_counts.total);
  const why = !absent ? "" : own ? ", in gaps and in rows that a party does not have" : ", all in rows that a party does not have";
  return ` ${sayShare(data.missing)} of the values are missing${why}.`;
}

function addFacts() {
  const bounds = data.lower_bounds;
  const facts = [
    ["Rows", sayCount(data.rows), `Examples that the parties hold together.${sayMissing()}`],
    ["Columns", sayCount(data.n_columns), isPart ? "Of this party's own block." : pools ? "Members of a hub hand theirs to its root." : "Each stays with the party that holds it."],
    ["Parties", sayCount(parties.length + data.others.length), sayParties()],
    ["Components", sayCount(nComponents), "Groups of rows, each with its own mean and covariance."],
    [
      "Iterations",
      sayCount(data.iterations),
      sayEnd(),
    ],
    data.log_likelihood === null
      ? [boundName[0].toUpperCase() + boundName.slice(1), say(bounds[bounds.length - 1], 5), `${isPart ? `Of all parties' columns${data.scaled ? ", divided by their deviations" : ""}, as this one saw it.` : "As the roots saw it."} Higher is better; compare fits of the same table only.`]
      : ["Log-likelihood per row", say(data.log_likelihood, 5), "Exact. Higher is better; compare fits of the same table only."],
    [isPart ? "Sent" : "Sent in all", sayBytes(data.traffic.bytes), `In ${sayMany(data.traffic.rounds, "round")}, one after another.`],
    isPart
      ? ["Received", sayBytes(data.traffic.agents[0][3]), "From its neighbours, in the last run."]
      : ["Messages", sayShort(data.traffic.messages), `Over ${sayMany(data.links.length, "link")}, both ways.`],
  ];
  find("#facts dl").append(
    ...facts.map(([name, value, meaning]) =>
      make("div", {}, make("dt", {}, name), make("dd", { class: "value" }, value), make("dd", { class: "meaning" }, meaning)),
    ),
  );
}

// What is around the cards

function addFrame() {
  addHead(
    data.title,
    isPart
      ? `One party's part of a mixture that ${sayCount(1 + data.others.length)} parties fitted together, each with columns of its own.`
      : parties.length === 1
      ? "One mixture, fitted by one party."
      : `One mixture, fitted by ${sayCount(parties.length)} parties that hold different columns of the same rows.`,
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

const CARDS = [
  addVerdict, addFacts, // whether to believe it, and what it is
  addProfiles, addImportance, // who the clusters are
  addCertainty, // how sure
  addMarginals, addPairs, addCovariances,
  addRows, // what it was fitted to
  addTrajectory, addAgreement, addRepairs,
  addNetwork, addTraffic, addSettings,
];
for (const add of [...CARDS, addFrame, arrange]) add();
