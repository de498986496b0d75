"""What a page is asked, in its own language."""

CONTRAST = """() => {
  // Every visible piece of text whose contrast with what lies behind it is less than WCAG's AA asks for.
  const parse = (css) => {
    const [r, g, b, a = 1] = (css.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    return [r, g, b, a];
  };
  const luminance = ([r, g, b]) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map((v) => linear(v / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const found = parse(getComputedStyle(e).backgroundColor);
      if (found[3] === 1) return found;
    }
    return [255, 255, 255, 1];
  };
  const poor = [];
  let seen = 0;
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
    if (element.closest(".quiet, .skip, option, script, style")) continue;
    const style = getComputedStyle(element);
    const svg = element instanceof SVGElement;
    const text = parse(svg ? style.fill : style.color);
    const [a, b] = [luminance(text), luminance(ground(svg ? element.closest("svg").parentElement : element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    seen += 1;
    if (ratio < (large ? 3 : 4.5)) poor.push(`${element.tagName} "${element.textContent.trim()}" ${ratio.toFixed(2)}`);
  }
  return { seen, poor };
}"""

UNNAMED = """() => [...document.querySelectorAll("button, input, select, a, dialog, [role=img], [role=region]")]
  .filter((e) => {
    const other = document.getElementById(e.getAttribute("aria-labelledby"));
    const words = e.getAttribute("aria-label") || other?.textContent
      || [...(e.labels ?? [])].map((l) => l.textContent).join("") || (/^(BUTTON|A)$/.test(e.tagName) && e.textContent);
    return !words?.trim();
  })
  .map((e) => e.outerHTML)"""

FOCUSED = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return { name: e.id || e.textContent.trim(), ring };
}"""

GROUPS = """() => new Set(document.getElementById("hierarchy").data
  .filter((trace) => trace.name.startsWith("group")).map((trace) => trace.line.color)).size"""

TOPS = """async (snapshot) => {
  const { prepare, tops } = await import(new URL("static/hierarchy.js", location).href);
  const tree = prepare(snapshot.dendrogram);
  return [1, 2, 3, 7, 20, tree.n].map((k) => tops(tree, k));
}"""
