"use strict";

// Elements are made, never parsed: a name is always text, whatever it holds.

const SVG_NAMES = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG_NAMES, name), attributes, children);
}

function find(selector) {
  return document.querySelector(selector);
}

// Numbers and words

function say(number, digits = 4) {
  if (number === null || number === undefined) return "not known";
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return number.toExponential(Math.min(digits - 1, 2)).replace("e+", "e");
  return number.toLocaleString("en", { maximumSignificantDigits: digits });
}

function sayCount(number) {
  return number.toLocaleString("en");
}

function sayMany(number, one, many = `${one}s`) {
  return `${sayCount(number)} ${number === 1 ? one : many}`;
}

function sayShort(number) {
  return number < 1e5 ? sayCount(number) : number.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
}

function sayBytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${number.toLocaleString("en", { maximumSignificantDigits: 3 })} ${units[unit]}`;
}

function sayShare(share) {
  return `${(100 * share).toLocaleString("en", { maximumFractionDigits: 1 })}%`;
}

function shorten(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** A name that keeps its end, which often tells it from others. */
function shortenName(text, most) {
  return text.length > most ? `${text.slice(0, most - 5)}…${text.slice(-4)}` : text;
}

// Colours

const DASHES = ["", "7 3", "2 3", "9 3 2 3"];

function componentColour(component) {
  return `var(--component-${component % 8})`;
}

function componentDash(component) {
  return DASHES[(component + Math.floor(component / 8)) % DASHES.length];
}

function hubColour(hub) {
  return `var(--colour-${hub % 8})`;
}

// Figures

const figures = [];

/** Draw a section's figure for the width that it has, now and whenever that changes. */
function addFigure(id, paint) {
  const plot = find(`#${id} .plot`);
  const figure = {
    width: 0,
    redraw() {
      figure.width = Math.max(200, Math.floor(plot.clientWidth));
      plot.replaceChildren(paint(figure.width));
    },
    resize() {
      if (Math.floor(plot.clientWidth) > 0 && Math.floor(plot.clientWidth) !== figure.width) figure.redraw();
    },
  };
  figure.redraw();
  figures.push(figure);
  new ResizeObserver(() => requestAnimationFrame(figure.resize)).observe(plot);
  return figure;
}

function canvas(width, height, label, ...children) {
  const name = draw("title");
  name.textContent = label;
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, name, ...children);
}

function scale(low, high, start, end) {
  const span = high - low || 1;
  return (value) => start + ((value - low) / span) * (end - start);
}

/** Round numbers between two limits, about as many as asked for. */
function ticks(low, high, wanted, smallest = 0) {
  const rough = Math.max(smallest, (high - low) / Math.max(1, wanted));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let count = Math.ceil(low / step - 1e-9); count * step <= high + step * 1e-9; count += 1) found.push(count * step);
  return { values: found, step };
}

/** As many decimals as the distance of two ticks needs. */
function sayTick(value, step) {
  if (Math.abs(value) >= 1e6 || step < 1e-4) {
    return Math.abs(value) < step / 2 ? "0" : Number(value.toPrecision(8)).toExponential().replace("e+", "e");
  }
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const text = Math.abs(value) < step / 2 ? "0" : value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return text;
}

function frame(width, height, left = 52) {
  return { left, right: width - 10, top: 10, bottom: height - 40, width, height };
}

/** Axes with ticks: `across` and `up` are {low, high, name, whole}. */
function axes(box, across, up) {
  const group = draw("g");
  const x = scale(across.low, across.high, box.left, box.right);
  const marks = ticks(across.low, across.high, Math.min(6, (box.right - box.left) / 55), across.whole ? 1 : 0);
  for (const value of marks.values) {
    group.append(
      draw("line", { class: "axis", x1: x(value), x2: x(value), y1: box.bottom, y2: box.bottom + 4 }),
      draw("text", { class: "quiet", x: x(value), y: box.bottom + 17, "text-anchor": "middle" }, sayTick(value, marks.step)),
    );
  }
  group.append(
    draw("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle" }, shorten(across.name, Math.floor((box.right - box.left) / 7))),
  );
  if (up) {
    const y = scale(up.low, up.high, box.bottom, box.top);
    const heights = ticks(up.low, up.high, 5);
    for (const value of heights.values) {
      group.append(
        draw("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
        draw("text", { class: "quiet", x: box.left - 6, y: y(value) + 4, "text-anchor": "end" }, sayTick(value, heights.step)),
      );
    }
    if (up.name) {
      const middle = (box.top + box.bottom) / 2;
      group.append(
        draw("text", { x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }, shorten(up.name, Math.floor((box.bottom - box.top) / 7))),
      );
    }
  }
  return group;
}

/** Space left of an axis for its name and its longest tick. */
function leftOf(low, high) {
  const marks = ticks(low, high, 5);
  return 26 + 7 * Math.max(1, ...marks.values.map((value) => sayTick(value, marks.step).length));
}

let clips = 0;

/** What lies outside of a box is cut off. */
function clip(box, ...children) {
  const id = `clip-${(clips += 1)}`;
  const shape = draw("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top });
  return draw("g", { "clip-path": `url(#${id})` }, draw("clipPath", { id }, shape), ...children);
}

function path(points) {
  return points.map(([x, y], number) => `${number ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
}

// Tables

function table(heads, rows) {
  return make(
    "table",
    {},
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell, number) => (number ? make("td", {}, cell) : make("th", { scope: "row" }, cell)))))),
  );
}

/** A table whose columns sort when their heads are pressed; `columns` are {name, value, cell}. */
function sortableTable(columns, items, first) {
  const body = make("tbody");
  const heads = columns.map((column) => make("th", { scope: "col" }, make("button", { type: "button" }, column.name)));
  let chosen = -1;
  let falling = true;
  function sort(number, falls) {
    [chosen, falling] = [number, falls];
    const value = columns[number].value;
    const compare = (one, other) => (typeof value(one) === "string" ? value(one).localeCompare(value(other), "en", { numeric: true }) : value(one) - value(other));
    const ordered = [...items].sort((one, other) => (falls ? -1 : 1) * compare(one, other));
    body.replaceChildren(...ordered.map((item) => make("tr", {}, ...columns.map((column) => column.cell(item)))));
    heads.forEach((head, place) => head.setAttribute("aria-sort", place === number ? (falls ? "descending" : "ascending") : "none"));
  }
  heads.forEach((head, number) => {
    head.firstChild.addEventListener("click", () => sort(number, chosen === number ? !falling : typeof columns[number].value(items[0]) !== "string"));
  });
  sort(first, typeof columns[first].value(items[0]) !== "string");
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body);
}

/** Options are [value, text], or [value, text, group]: those of one group stand together under its name. */
function setOptions(select, options, chosen) {
  const groups = new Map();
  const offered = options.map(([value, text, group]) => {
    const option = make("option", { value }, text);
    if (group === undefined) return option;
    if (groups.has(group)) {
      groups.get(group).append(option);
      return null;
    }
    groups.set(group, make("optgroup", { label: group }, option));
    return groups.get(group);
  });
  select.replaceChildren(...offered.filter((child) => child !== null));
  if (chosen !== undefined) select.value = String(chosen);
}
