// Keeps the parts of a page that are marked `data-live` up to date. Forms, and what a person has unfolded, stay as they are.
(() => {
  const parse = (text) => new DOMParser().parseFromString(text, "text/html");
  const live = (root) => new Map([...root.querySelectorAll("[data-live]")].map((e) => [e.dataset.live, e]));
  // Relative times change by themselves; that alone is no news.
  const plain = (element) => element.innerHTML.replace(/just now|\d+ (min|h) ago/g, "");
  const shown = new Map([...live(document)].map(([name, element]) => [name, plain(element)]));

  const refresh = async () => {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) return;
    for (const [name, fresh] of live(parse(await answer.text()))) {
      const here = live(document).get(name);
      if (!here || shown.get(name) === plain(fresh)) continue;
      shown.set(name, plain(fresh));
      const folds = [...here.querySelectorAll("details")].map((e) => e.open);
      here.innerHTML = fresh.innerHTML;
      here.querySelectorAll("details").forEach((e, i) => { if (i < folds.length) e.open = folds[i]; });
    }
  };

  let waiting = null;
  const soon = () => { if (waiting === null) waiting = setTimeout(() => { waiting = null; refresh().catch(() => {}); }, 150); };
  new EventSource("/changes").onmessage = soon;
})();
