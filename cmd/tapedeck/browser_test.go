package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"
)

// page publishes and pulls with nothing but fetch, and reports to its own server
// what it saw. It comes from another origin than the broker's.
const page = `<!doctype html><title>Tapedeck from a page</title><script>
const broker = %q
async function call(method, body) {
  const res = await fetch(broker + "/tapedeck.v1." + method, {
    method: "POST",
    headers: {"Content-Type": "application/json", "Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "20000"},
    body: JSON.stringify(body),
  })
  const answer = await res.json()
  if (!res.ok) throw new Error(method + ": " + res.status + " " + JSON.stringify(answer))
  return answer
}
async function main() {
  await call("AdminService/CreateTopic", {name: "browser"})
  await call("AdminService/CreateSubscription", {topic: "browser", name: "page"})
  const published = await call("PubSubService/Publish",
    {topic: "browser", messages: [{key: btoa("k"), payload: btoa("from a page")}]})
  let messages = []
  for (let i = 0; i < 10 && messages.length == 0; i++) {
    const pulled = await call("PubSubService/Pull", {subscription: "browser/page", member: "tab", wait: "5s"})
    messages = pulled.messages
  }
  const refused = await fetch(broker + "/tapedeck.v1.PubSubService/Publish", {method: "POST",
    headers: {"Content-Type": "application/json"}, body: JSON.stringify({topic: "nowhere", messages: [{}]})})
  return {offset: published.results[0].offset, payload: atob(messages[0].payload),
    status: refused.status, code: (await refused.json()).code}
}
main().catch(e => ({error: String(e)})).then(r => fetch("/report", {method: "POST", body: JSON.stringify(r)}))
</script>`

// chromium finds a browser. Without one the test is skipped, but not in CI.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("no chromium is installed, and CI must not skip this test: run make setup as root")
	}
	t.Skip("no chromium is installed: run make setup as root to have it")
	return ""
}

func TestAPageInABrowserPublishesAndPulls(t *testing.T) {
	browser := chromium(t)
	broker := startTestCluster(t, 3, "").nodes[0].URL()
	reports := make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, page, broker)
	})
	mux.HandleFunc("POST /report", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case reports <- string(body):
		default:
		}
	})
	site := httptest.NewServer(mux)
	defer site.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	profile, err := os.MkdirTemp("", "tapedeck-browser-")
	if err != nil {
		t.Fatal(err)
	}
	// The browser's helpers may outlive it a moment and still write there.
	defer func() { _ = os.RemoveAll(profile) }()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-dev-shm-usage", "--remote-debugging-port=0", "--user-data-dir="+profile, site.URL+"/")
	cmd.WaitDelay = 10 * time.Second
	ended := make(chan string, 1)
	go func() {
		out, err := cmd.CombinedOutput()
		ended <- fmt.Sprintf("%v: %s", err, out)
	}()
	var report string
	select {
	case report = <-reports:
		cancel()
		<-ended
	case how := <-ended:
		t.Fatalf("the browser ended before the page reported: %s", how)
	}
	var got struct {
		Offset, Payload, Code, Error string
		Status                       int
	}
	if err := json.Unmarshal([]byte(report), &got); err != nil {
		t.Fatalf("report %s: %v", report, err)
	}
	if got.Error != "" || got.Offset != "0" || got.Payload != "from a page" ||
		got.Status != 404 || got.Code != "not_found" {
		t.Errorf("the page reports %s", report)
	}
}
