// Which instructions are meant: those of a session, a span, a line, with a text. All that is given must hold.

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

// Does a text contain this, whatever its case? `*` stands for any text but `/`, and `#12` for that id alone.
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
