// Numbers and moments, for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

export const count = (n) => (n == null ? "–" : whole.format(n));
export const compact = (n) => (n == null ? "–" : Math.abs(n) < 10_000 ? whole.format(n) : short.format(n));
export const number = (n) => (n == null ? "–" : precise.format(n).replace("-", "−"));
/** A mean with its standard deviation, to two digits of that. */
export function spread(mean, std) {
  if (!(std > 0)) return number(mean);
  const digits = Math.min(12, Math.max(0, 1 - Math.floor(Math.log10(std))));
  const fixed = new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${fixed.format(mean).replace("-", "−")} ± ${fixed.format(std)}`;
}
export const percent = (share) => `${(100 * share).toFixed(1)}%`;
export const bytes = (n) => (n == null ? "–" : n < 1e9 ? `${(n / 1e6).toFixed(0)} MB` : `${(n / 1e9).toFixed(2)} GB`);

export function duration(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor(s / 3600) % 24} h`;
}

/** Where the page shows a cluster in detail. */
export const address = (id) => `#cluster=${id}`;

/** Unix seconds as the local time that Plotly, which knows no time zones, shall write. */
export function local(seconds) {
  const zone = new Date(1000 * seconds).getTimezoneOffset();
  return new Date(1000 * (seconds - 60 * zone)).toISOString().slice(0, -1);
}

/** Text that Plotly, which reads some tags, shall write as it is. */
export const literal = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** An element with text and attributes; children may follow. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
