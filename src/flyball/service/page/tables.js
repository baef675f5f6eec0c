// Who waits, who runs, who rests; what each project gets; which nodes and hosts share a pool. One small machine for
// all of them: a table is a list of columns, and a column that has nothing to say about any row is left out.

import { byId, h, keyed, put, say, show } from "./dom.js";

const FIRST_ROWS = 12;

/**
 * A table in the section of that id. Columns: {id, title, text(row), and maybe: number, wide, kind(row), cell}.
 * `cell` is {make(), update(element, row)} for what is more than text.
 */
export class Table {
  #section;
  #columns;
  #title;
  #key;
  #body = h("tbody", { role: "rowgroup" });
  #head = h("tr", { role: "row" });
  #count = h("span.count");
  #more = h("button.quiet.more", { type: "button", hidden: true });
  #none;
  #all = false;
  #again = () => {};
  #rowKind;

  constructor(id, { title, columns, key, none = "", rowKind = () => "" }) {
    this.#section = byId(id);
    this.#columns = columns;
    this.#title = title;
    this.#key = key;
    this.#rowKind = rowKind;
    this.#none = h("p.none", { hidden: true }, none);
    this.#more.addEventListener("click", () => {
      this.#all = !this.#all;
      this.#again();
    });
    const head = h("h2", { id: `${id}-title`, tabindex: "-1" }, title, " ", this.#count);
    this.table = h("table", { role: "table", "aria-labelledby": `${id}-title` },
      h("thead", { role: "rowgroup" }, this.#head), this.#body);
    this.#section.append(head, this.table, this.#none, this.#more);
  }

  /** `total` counts rows that the server did not list. */
  paint(rows, { total = rows.length, filtered = false } = {}) {
    this.#again = () => this.paint(rows, { total, filtered });
    const columns = this.#columns.filter((column) => column.always || rows.some((row) => column.text(row) !== ""));
    const shown = this.#all ? rows : rows.slice(0, FIRST_ROWS);
    show(this.#section, rows.length > 0 || this.#none.textContent !== "");
    say(this.#count, filtered ? `${rows.length} of ${total}` : total || "");
    show(this.table, rows.length > 0);
    show(this.#none, rows.length === 0);
    this.#paintHead(columns);
    keyed(this.#body, shown, {
      key: this.#key,
      make: () => h("tr", { role: "row" }),
      update: (element, row) => this.#paintRow(element, row, columns),
    });
    show(this.#more, rows.length > FIRST_ROWS);
    say(this.#more, this.#all ? `Show the first ${FIRST_ROWS}` : `Show all ${rows.length}`);
    put(this.#more, "aria-label", `${this.#more.textContent} in ${this.#title}`);
  }

  #paintHead(columns) {
    keyed(this.#head, columns, {
      key: (column) => column.id,
      make: (column) => {
        const number = column.number ?? false;
        const title = column.unseen ? h("span.unseen", {}, column.title) : column.title;
        return h(`th.${column.id}`, { scope: "col", role: "columnheader", "data-number": number }, title);
      },
      update: () => {},
    });
  }

  #paintRow(element, row, columns) {
    put(element, "data-is", this.#rowKind(row) || null);
    keyed(element, columns, {
      key: (column) => column.id,
      make: (column) => {
        const attributes = { role: "cell", "data-title": column.title, "data-number": column.number ?? false };
        return h(`td.${column.id}`, attributes, ...(column.cell ? [column.cell.make(row)] : []));
      },
      update: (cell, column) => {
        if (column.cell) column.cell.update(cell.firstElementChild, row);
        else say(cell, column.text(row));
        if (column.kind) put(cell, "data-is", column.kind(row) || null);
      },
    });
  }
}
