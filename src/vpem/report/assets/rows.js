// Which rows the fit has: of each party, in common, used; and which values are missing.

/** A number of rows; small ones are not told. */
function sayRows(count) {
  return count === null ? `fewer than ${data.smallest}` : sayCount(count);
}

function addRows() {
  const found = data.row_counts;
  if (found === null) {
    find("#rows").remove();
    return;
  }
  const { total, common, used, empty, gaps } = found;
  const several = found.parties.length > 1;
  const complete = several && common === total && found.parties.every((party) => party[1] === total);
  about(
    "rows",
    !several ? `${sayMany(total, "row")}.` : complete ? `All parties have all ${sayMany(total, "row")}.` : `${sayMany(total, "row")} in all.`,
    several && !complete && common !== undefined ? `All parties have ${sayRows(common)} of them.` : "",
    empty === 0 ? "" : `Of ${sayRows(empty)}, no party has a value.`,
    used === total ? "The fit uses all of them." : `The fit uses ${sayRows(used)} of them.`,
    !gaps.length ? (several && !complete ? "No value is missing in the rows that a party has." : "No value is missing.") : found.joined ? "Gaps are values that are missing in rows that the party has." : "",
  );
  const [parties, columns] = document.querySelectorAll("#rows .scroll");
  if (several && !complete) {
    const known = found.parties.some((party) => party.length > 2);
    const shown = found.parties.map((party) => [party[0], sayRows(party[1]), ...(known ? [party.length > 2 ? sayRows(party[2]) : ""] : [])]);
    parties.append(table(["Party", "Rows", ...(known ? ["Of these at another party"] : [])], shown));
  } else {
    parties.remove();
  }
  if (!gaps.length) {
    columns.remove();
    return;
  }
  const words = gaps.some(([, , own]) => own);
  columns.append(table(["Column", "Gaps", ...(words ? ["Words that count as gaps"] : [])], gaps.map(([name, count, own]) => [name, sayRows(count), ...(words ? [own] : [])])));
}
