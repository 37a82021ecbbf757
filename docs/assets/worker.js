// Lets the search work in pages that are opened from the file system, where browsers refuse workers.
//
// The script of a worker runs in a hidden frame instead. Only what the search worker uses is here: messages both
// ways. The theme would load such a script from another host; nothing of this site comes from anywhere else.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.answer(data);
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = () => this.start();
      inside.document.body.append(script);
    }

    start() {
      const waiting = this.waiting;
      this.waiting = null;
      for (const data of waiting) this.postMessage(data);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }

    terminate() {
      this.frame.remove();
    }
  };
}
