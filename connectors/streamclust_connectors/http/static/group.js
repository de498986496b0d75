// The consumer group: its members, their partitions, and the model they assign by.

import { count } from "./format.js";

const sum = (numbers) => Object.values(numbers).reduce((total, n) => total + n, 0);

/** Numbers of the partitions that a member holds, in order; those it does not read are marked. */
function partitions({ positions, stopped }) {
  const number = (name) => Number(name.slice(name.lastIndexOf("-") + 1));
  const held = Object.keys(positions).map((name) => [number(name), ""]);
  const set = Object.keys(stopped).map((name) => [number(name), " (stopped)"]);
  return [...held, ...set].sort((a, b) => a[0] - b[0]).map(([n, note]) => `${n}${note}`).join(", ") || "none";
}

export function showGroup(panel, body, note, group) {
  panel.hidden = !group;
  if (!group) return;
  body.replaceChildren(...group.members.map((member) => {
    const row = document.createElement("tr");
    const cells = [
      member.member + (member.leads ? " (leads)" : ""), partitions(member), count(sum(member.lag)),
      count(member.events), member.model_version ?? "none",
    ];
    row.append(...cells.map((text, i) => {
      const cell = document.createElement(i ? "td" : "th");
      if (!i) cell.scope = "row";
      cell.textContent = text;
      return cell;
    }));
    return row;
  }));
  const age = group.model_staleness_seconds;
  note.textContent = group.model_version === null ? "The group has no model yet." :
    `Model ${group.model_version}; all that was learnt was in it ${Math.round(age)} s ago. ` +
    "Events, clusters and hierarchy on this page are the whole group's; rate, lag and memory are this process's.";
}
