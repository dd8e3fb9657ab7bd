"""Pages as a browser lays them out at a width of the screen."""

from browser import Browser

_LAYOUT = """(() => {
  document.querySelectorAll('details').forEach(e => { e.open = true; });
  const wide = e => Math.ceil(e.getBoundingClientRect().width), whole = document.documentElement;
  const all = kind => [...document.querySelectorAll(kind)];
  const texts = all('svg text').filter(e => e.textContent), outside = texts.filter(e => {
    const r = e.getBoundingClientRect(), s = e.closest('svg').getBoundingClientRect();
    return r.left < s.left - 1 || r.right > s.right + 1;
  });
  return {page: whole.scrollWidth, height: whole.scrollHeight, tables: all('table').map(wide),
    svgs: all('figure svg').map(wide), undrawn: all('.chart:not(:has(svg))').length,
    outside: outside.map(e => e.textContent),
    smallest: Math.min(...texts.map(e => e.getBoundingClientRect().height))};
})()"""


def laid_out(page, folder, widths):
    """Lay a page out at several widths: nothing but a table is wider, and every text is legible."""
    path, found = folder / "page.html", {}
    path.write_text(page.render(), encoding="utf-8")
    with Browser(folder / "profile") as browser:
        for width in widths:
            browser.show(path, width=width)
            browser.run("drawn")
            found[width] = made = browser.run(_LAYOUT)
            assert max(made["page"], *made["svgs"]) <= width
            assert made["undrawn"] == 0
            assert made["outside"] == []
            assert made["smallest"] >= 7
        assert browser.complaints() == []
    return found
