// A browser starts no Worker from a file, and the search of the site is a Worker. If the site is
// opened from disk, its script runs in a hidden frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.onmessage = null
      this.onerror = null
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (data) => {
        const copy = structuredClone(data)
        setTimeout(() => this.onmessage?.({ data: copy }))
      }
      const script = inside.document.createElement("script")
      script.src = address
      script.onload = () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach((data) => this.postMessage(data))
      }
      script.onerror = () => this.onerror?.(new ErrorEvent("error"))
      inside.document.body.append(script)
    }

    // Messages are copies and come later, as those of a Worker.
    postMessage(data) {
      const copy = structuredClone(data)
      if (this.waiting) this.waiting.push(copy)
      else setTimeout(() => this.frame.contentWindow?.onmessage({ data: copy }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
