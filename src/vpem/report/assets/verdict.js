// The verdict on a fit: its colour, and what was found, in words.

const SEVERITIES = { red: "Red", amber: "Amber", note: "Note" };
const VERDICTS = {
  red: "this fit is not to be trusted as it is",
  amber: "look at the findings before you rely on this fit",
  green: "nothing was found wrong",
};
const NOT_JUDGED = "this model comes without a verdict. It was saved by an older version of vpem, which did not judge fits: fit it again to have one.";

/** The colour as a word in the colour: no reader has to see it. */
function colourSign(colour) {
  return make("strong", { class: "sign-of", "data-colour": colour ?? "none" }, colour ?? "not judged");
}

/** What was found, the worst first, each with what to try. */
function findingsList(findings) {
  return findings.map(({ severity, sentence, remedy }) =>
    make(
      "li",
      { "data-colour": severity },
      make("strong", {}, `${SEVERITIES[severity] ?? severity}: `),
      sentence,
      remedy ? make("span", { class: "remedy" }, `What to try: ${remedy}.`) : null,
    ),
  );
}

function addVerdict() {
  const { colour, findings } = data.verdict;
  find("#verdict").setAttribute("data-colour", colour ?? "none");
  find("#verdict h2").append("Verdict ", colourSign(colour));
  find("#verdict .about").textContent = `${(VERDICTS[colour] ?? NOT_JUDGED).replace(/^./, (first) => first.toUpperCase())}${colour === null ? "" : "."}`;
  if (findings.length) find("#verdict ul").append(...findingsList(findings));
  else find("#verdict ul").remove();
}
