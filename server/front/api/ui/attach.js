/* Text files that go with a message: dropped on the page, or chosen. */

const MAX_FILE = 1e6; /* bytes: about 250,000 tokens */
const MAX_TYPED = 1e5; /* characters that a field takes at once; a browser needs 10 s for 10^6 */
let attached = [];    /* {name, text} for the next message */

function listAttached() {
  $("files").replaceChildren(...attached.map((file, i) => {
    const remove = makeButton("✕", () => { attached.splice(i, 1); listAttached(); $("input").focus(); });
    remove.ariaLabel = "Remove " + file.name;
    return make("li", "", file.name + " · " + sizeOf(file.text), remove);
  }));
}

const sizeOf = text => shortNumber(text.length) + (text.length === 1 ? " character" : " characters");

async function attachFiles(files) {
  const refused = [];
  for (const file of files) {
    if (file.size > MAX_FILE) {
      refused.push(file.name + " has " + shortNumber(file.size / 1e6) + " MB; a file may have 1 MB.");
      continue;
    }
    try {
      const text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer());
      if (text.includes("\0")) throw new Error("binary");
      attached.push({name: file.name, text});
    } catch {
      refused.push(file.name + " is not a text file in UTF-8.");
    }
  }
  showNotice(refused.join(" "));
  listAttached();
  $("input").focus();
}

/* A fence that the text does not contain. */
function fenceFor(text) {
  let n = 3;
  for (const run of text.match(/`+/g) || []) n = Math.max(n, run.length + 1);
  return "`".repeat(n);
}

/* What the model reads: each file by name, then the message. */
function contentOf(turn) {
  const parts = (turn.files || []).map(file => "File " + file.name + ":\n" + fenceFor(file.text) + "\n" + file.text + "\n" + fenceFor(file.text));
  return [...parts, turn.text].filter(Boolean).join("\n\n");
}

/* Its text is put in when it is opened first. */
function makeFile(file) {
  const details = make("details", "file", make("summary", "", file.name + " · " + sizeOf(file.text)));
  details.addEventListener("toggle", () => {
    if (details.children.length > 1) return;
    const pre = make("pre");
    putText(pre, file.text);
    Object.assign(pre, {tabIndex: 0, role: "region", ariaLabel: file.name});
    details.append(pre);
  });
  return details;
}

/* A long text that is pasted or dropped into the message becomes a file. */
function takeLongText(event) {
  const text = event.data || "";
  if (text.length <= MAX_TYPED || event.target.localName !== "textarea") return;
  event.preventDefault();
  if (event.target === $("input") && !openCalls().length) attachFiles([new File([text], "pasted.txt")]);
  else showNotice("The pasted text has " + sizeOf(text) + "; this field takes " + shortNumber(MAX_TYPED) + " at once.");
}

function beginAttach() {
  addEventListener("beforeinput", takeLongText);
  $("attach").addEventListener("click", () => $("attach-file").click());
  $("attach-file").addEventListener("change", async () => {
    await attachFiles([...$("attach-file").files]);
    $("attach-file").value = "";
  });
  /* A file that is dropped beside the chat would otherwise replace the page. */
  addEventListener("dragover", event => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", event => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", event => {
    document.body.classList.remove("dropping");
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    showView("chat");
    attachFiles([...event.dataTransfer.files]);
  });
}
