// The pages work without this script. It keeps the navigation open on wide screens, gives headings a link to themselves, and
// searches the pages: search.js has their text, and is loaded once somebody searches.
(() => {
  const root = document.documentElement.dataset.root;

  const menu = document.getElementById("menu");
  const isWide = matchMedia("(min-width: 60rem)");
  const openMenu = () => { menu.open = isWide.matches; };
  isWide.addEventListener("change", openMenu);
  openMenu();
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest" });
  const contents = document.querySelector(".contents");
  if (contents && matchMedia("(min-width: 84rem)").matches) contents.open = true;

  for (const heading of document.querySelectorAll("article :is(h2, h3, h4)[id]")) {
    const link = document.createElement("a");
    link.className = "anchor";
    link.href = "#" + heading.id;
    link.textContent = "#";
    link.ariaLabel = "Link to this section";
    heading.append(link);
  }

  const query = document.getElementById("query");
  const results = document.getElementById("results");
  const limit = 12; // results that are shown

  let loading;
  const load = () => loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = root + "search.js";
    script.onload = () => resolve(window.searchIndex);
    script.onerror = reject;
    document.head.append(script);
  });

  // Every word must be there; one in a title counts more than one in the text.
  const score = (entry, words) => {
    let sum = 0;
    const title = entry.t.toLowerCase(), page = entry.p.toLowerCase(), text = entry.x.toLowerCase();
    for (const word of words) {
      const found = (title.includes(word) ? 10 : 0) + (page.includes(word) ? 4 : 0) + (text.includes(word) ? 1 : 0);
      if (!found) return 0;
      sum += found;
    }
    return sum;
  };

  const excerpt = (entry, word) => {
    const small = document.createElement("small");
    const at = entry.x.toLowerCase().indexOf(word);
    if (at < 0) {
      small.textContent = entry.x.slice(0, 120);
      return small;
    }
    const mark = document.createElement("mark");
    mark.textContent = entry.x.slice(at, at + word.length);
    const before = entry.x.slice(Math.max(0, at - 50), at), after = entry.x.slice(at + word.length, at + 90);
    small.append(at > 50 ? before.replace(/^\S*/, "…") : before, mark, after.replace(/\S*$/, "…"));
    return small;
  };

  const show = async () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.hidden = words.length === 0;
    if (results.hidden) return;
    const index = await load();
    const found = index.map((entry) => [score(entry, words), entry]).filter(([points]) => points > 0);
    found.sort(([a], [b]) => b - a);
    results.replaceChildren(...found.slice(0, limit).map(([, entry]) => {
      const line = document.createElement("li"), link = document.createElement("a");
      link.href = root + entry.u;
      link.append(entry.t === entry.p ? entry.t : entry.p + " › " + entry.t, excerpt(entry, words[0]));
      line.append(link);
      return line;
    }));
    if (found.length === 0) {
      const nothing = document.createElement("p");
      nothing.textContent = "Nothing found.";
      results.append(nothing);
    }
  };

  query.addEventListener("focus", load);
  query.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(input|textarea)$/i.test(document.activeElement.tagName)) {
      event.preventDefault();
      query.focus();
    } else if (event.key === "Escape") {
      results.hidden = true;
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !results.hidden) {
      const links = [...results.querySelectorAll("a")];
      const next = links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
      (links[next] ?? query).focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) results.hidden = true;
  });
})();
