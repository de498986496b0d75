// What a service that has no events yet wants: for one that learns by HTTP, a line to copy.

/** An event as JSON: two numbers or, where events hold a vector, that at its path. */
function example(vector) {
  if (!vector) return [{ x: 1.2, y: 3.4 }];
  return [vector.split(".").reduceRight((inner, name) => ({ [name]: inner }), [0.1, 0.2, 0.3])];
}

export function showStart(panel, line, note, status, token) {
  panel.hidden = status.events > 0;
  if (panel.hidden) return;
  const takes = status.source === "http";
  line.parentElement.hidden = !takes;
  note.textContent = takes ? "Send the first events; the page shows them within seconds."
    : `Waiting for the first events of the source (${status.source}).`;
  const key = token ? ' -H "Authorization: Bearer $TOKEN"' : "";
  const url = new URL("v1/learn", location.href.split("#")[0]);
  line.textContent = `curl ${url}${key} -H "Content-Type: application/json" -d '${JSON.stringify(example(status.vector))}'`;
}

/** A button that copies a line; where the page may not, it marks the line, to be copied by hand. */
export function copyButton(button, line) {
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(line.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    } catch {
      getSelection().selectAllChildren(line);
    }
  });
}
