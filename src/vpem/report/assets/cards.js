// What all pages have: words about a card, the list of the cards, and their places.

function about(id, ...texts) {
  find(`#${id} .about`).textContent = texts.filter(Boolean).join(" ");
}

function caption(id, text) {
  find(`#${id} figcaption`).textContent = text;
}

/** The title, a sentence, and links to the cards. */
function addHead(title, lead) {
  find("#title").textContent = title;
  find("#lead").textContent = lead;
  find("#contents").append(
    ...[...document.querySelectorAll("section")].map((section) =>
      make("li", {}, make("a", { href: `#${section.id}` }, section.dataset.name ?? section.querySelector("h2").textContent)),
    ),
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
