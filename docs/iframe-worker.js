// Search runs in a worker, which browsers refuse to pages from the file system. There its script
// runs in a hidden frame instead. The theme looks for the name IFrameWorker.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super()
    const frame = document.createElement("iframe")
    frame.hidden = true
    document.body.append(frame)
    const inside = frame.contentWindow
    inside.document.open()
    inside.document.write("<body></body>")
    inside.document.close()
    inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
    inside.importScripts = async (...urls) => {
      for (const each of urls) await IFrameWorker.load(inside.document, each)
    }
    this.inside = inside
    this.loaded = IFrameWorker.load(inside.document, url)
  }

  static load(page, url) {
    return new Promise((resolve, reject) => {
      const script = page.createElement("script")
      script.src = url
      script.onload = resolve
      script.onerror = reject
      page.body.append(script)
    })
  }

  postMessage(data) {
    this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker
  window.Worker = IFrameWorker
}
