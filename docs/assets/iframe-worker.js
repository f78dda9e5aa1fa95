/* From file:// a page may start no worker, which the search is. There a hidden frame runs its script instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((resolve) => {
        frame.addEventListener("load", () => {
          const inner = frame.contentWindow;
          inner.postMessage = (data) => {
            const event = new MessageEvent("message", { data });
            this.onmessage?.(event);
            this.dispatchEvent(event);
          };
          inner.importScripts = (...urls) => urls.map((each) => this.add(each));
          this.frame = frame;
          this.add(url).then(resolve);
        });
      });
      document.addEventListener("DOMContentLoaded", () => document.body.append(frame));
      if (document.body) document.body.append(frame);
    }

    add(url) {
      return new Promise((resolve) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = resolve;
        this.frame.contentDocument.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame?.remove();
    }
  };
}
