// What the service says. Addresses are relative: the page works behind any prefix.

const KEY = "streamclust-token";

export class Unauthorised extends Error {}
export class Refused extends Error {}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/** JSON of an address. Unauthorised: a token is wanted; Refused: an answer that says why; anything else: no answer. */
export async function ask(path, options = {}) {
  const token = sessionStorage.getItem(KEY);
  const headers = { Accept: "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(`v1/${path}`, { ...options, headers, signal: AbortSignal.timeout(15_000) });
  if (answer.status === 401) throw new Unauthorised(token ? "wrong" : "missing");
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  const reason = problem.detail || problem.title || `the service answered ${answer.status}`;
  throw new Refused(reason);
}
