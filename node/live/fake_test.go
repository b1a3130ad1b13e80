package live

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/node"
)

// fakeHost answers requests by a function, on the loop's goroutine.
type fakeHost struct {
	env    node.Env
	answer func(core.Request) (call.ClientResult, *model.Error) // (nil, nil): never
	events chan core.Event                                      // all but requests; may be nil
	work   func(env node.Env, ev core.Event)
	do     func(ws []*node.JournalWork) func()
}

func (h *fakeHost) Start(env node.Env) { h.env = env }
func (h *fakeHost) Tick()              { h.Step(core.Tick{}) }
func (h *fakeHost) Close() error       { return nil }
func (h *fakeHost) Shard() *core.Shard { return core.New(core.Config{Self: "n1"}) }

func (h *fakeHost) DoJournal(ws []*node.JournalWork) func() {
	if h.do == nil {
		return nil
	}
	return h.do(ws)
}

func (h *fakeHost) Step(ev core.Event) {
	if h.work != nil {
		h.work(h.env, ev)
	}
	r, ok := ev.(core.Request)
	if !ok {
		if h.events != nil {
			h.events <- ev
		}
		return
	}
	if _, ok := r.Call.(*call.GetCluster); ok {
		h.env.Reply(r.ID, &call.GetClusterResult{Self: "n1", Groups: []call.GroupStatus{
			{Group: model.Group{ID: model.MetaGroup, Kind: model.GroupMeta}, Leader: "n1"},
		}}, nil)
		return
	}
	if h.answer == nil {
		return
	}
	if result, err := h.answer(r); result != nil || err != nil {
		h.env.Reply(r.ID, result, err)
	}
}

// roomyDisk is a data folder nobody touches.
type roomyDisk struct{ disk.FS }

func (roomyDisk) Free() (uint64, error) { return 1 << 40, nil }

var testPeers = []model.Node{{ID: "n1", Address: "127.0.0.1:1"}, {ID: "n2", Address: "127.0.0.1:2"}}

// startFake serves a node around a fake host.
func startFake(t *testing.T, h *fakeHost) *Node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := start(Config{
		ID: "n1", Peers: testPeers, Listener: l, FS: roomyDisk{}, Log: slog.New(slog.DiscardHandler),
		AllowedOrigins: []string{"localhost", "https://console.example"},
	}, h, newMetrics("n1"), newDirectory(testPeers))
	t.Cleanup(n.Kill)
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *Node) dial(options ...connecthttp.Option) *connect.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	return connect.NewClient(connecthttp.NewTransport(client, n.URL(), options...))
}

// post sends JSON the way curl does and returns status and body.
func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
