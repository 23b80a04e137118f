// Selects instructions by session, span, line and text. An instruction must match all fields that are not empty.

export class Filter {
  constructor(fields = {}) {
    this.fields = {session: "", span: "", line: "", text: "", ...fields};
    const {session, span, line, text} = this.fields;
    this.session = session === "" ? null : Number(session);
    this.tests = [
      span && (matcher => record => matcher(record.span))(matches(span)),
      line && (matcher => record => matcher(record.location))(matches(line)),
      text && (matcher => record => matcher(textOf(record)))(matches(text)),
    ].filter(Boolean);
  }

  get active() {
    return this.session !== null || this.tests.length > 0;
  }

  takes(record) {
    if (this.session !== null && record.session !== this.session && record.causedBy !== this.session) return false;
    return this.tests.every(test => test(record));
  }
}

// A function that tests whether a text contains `wanted`, in upper or lower case. `*` stands for any text without `/`;
// `#12` matches only that id.
function matches(wanted) {
  const plain = wanted.trim().toLowerCase();
  if (/^#\d+$/.test(plain)) return text => text.startsWith(plain + " ");
  if (!plain.includes("*")) return text => text.toLowerCase().includes(plain);
  const parts = plain.split("*").map(part => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  const pattern = new RegExp(parts.join("[^/]*"));
  return text => pattern.test(text.toLowerCase());
}

function textOf(record) {
  const {id, name, of, kind, status, device, stream, span, location, error} = record;
  return `#${id} ${[name, of, kind, status, `${device}/${stream}`, span, location, error].join(" ")}`;
}
