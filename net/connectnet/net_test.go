package connectnet

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/core/model"
)

// end is one node's transport with its listener.
type end struct {
	net     *Net
	server  *http.Server
	packets chan []byte
	downs   chan model.NodeID
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func start(t *testing.T, self model.NodeID, l net.Listener, peers []model.Node) *end {
	t.Helper()
	e := &end{packets: make(chan []byte, 10_000), downs: make(chan model.NodeID, 10_000)}
	e.net = New(Config{
		Self: self, Peers: peers, Log: slog.New(slog.DiscardHandler),
		Deliver: func(_ model.NodeID, packet []byte) { e.packets <- packet },
		Down: func(peer model.NodeID) {
			select {
			case e.downs <- peer:
			default:
			}
		},
	})
	mux := http.NewServeMux()
	e.net.Mount(mux)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	e.server = &http.Server{Handler: mux, Protocols: protocols, HTTP2: HTTP2()}
	var done sync.WaitGroup
	done.Go(func() { _ = e.server.Serve(l) })
	t.Cleanup(func() { e.stop(); done.Wait() })
	return e
}

func (e *end) stop() {
	e.net.Close()
	_ = e.server.Close()
}

func pair(t *testing.T) (a, b *end, nodes []model.Node) {
	la, lb := listen(t), listen(t)
	nodes = []model.Node{{ID: "n1", Address: la.Addr().String()}, {ID: "n2", Address: lb.Addr().String()}}
	return start(t, "n1", la, nodes), start(t, "n2", lb, nodes), nodes
}

// sendUntil repeats a probe until it arrives: what is sent before the stream is
// up may be dropped. What else arrives is skipped.
func sendUntil(t *testing.T, from, to *end, id model.NodeID, probe string) {
	t.Helper()
	for {
		from.net.Send(id, []byte(probe))
		select {
		case got := <-to.packets:
			if string(got) == probe {
				return
			}
		case <-from.downs:
		case <-t.Context().Done():
			t.Fatal("the probe never arrived")
		}
	}
}

func TestPacketsArriveInOrderBothWays(t *testing.T) {
	a, b, _ := pair(t)
	sendUntil(t, a, b, "n2", "up")
	sendUntil(t, b, a, "n1", "up")
	big := bytes.Repeat([]byte("x"), 3*FrameBytes)
	const count = 500
	for i := range count {
		a.net.Send("n2", fmt.Append(nil, i))
		b.net.Send("n1", fmt.Append(nil, i))
	}
	a.net.Send("n2", big)
	a.net.Send("n2", []byte{})
	for _, e := range []*end{a, b} {
		for i := range count {
			got := <-e.packets
			for string(got) == "up" {
				got = <-e.packets
			}
			if want := fmt.Sprint(i); string(got) != want {
				t.Fatalf("packet %d is %.20q, not %q", i, got, want)
			}
		}
	}
	if got := <-b.packets; !bytes.Equal(got, big) {
		t.Fatalf("the packet of %d bytes arrived with %d", len(big), len(got))
	}
	if got := <-b.packets; len(got) != 0 {
		t.Fatalf("the empty packet arrived with %d bytes", len(got))
	}
}

func TestALostPeerIsReportedAndReconnected(t *testing.T) {
	a, b, nodes := pair(t)
	sendUntil(t, a, b, "n2", "up")
	sendUntil(t, b, a, "n1", "up")
	for len(a.downs) > 0 {
		<-a.downs
	}
	b.stop()
	if got := <-a.downs; got != "n2" {
		t.Fatalf("down names %q", got)
	}
	l, err := net.Listen("tcp", nodes[1].Address)
	if err != nil {
		t.Fatal(err)
	}
	b = start(t, "n2", l, nodes)
	sendUntil(t, a, b, "n2", "again")
	sendUntil(t, b, a, "n1", "again")
}

func TestAStrangerIsHeardAndAnsweredOnceItsAddressIsKnown(t *testing.T) {
	la, lb := listen(t), listen(t)
	a := start(t, "n1", la, nil)
	b := start(t, "n2", lb, []model.Node{{ID: "n1", Address: la.Addr().String()}})
	sendUntil(t, b, a, "n1", "may I join?")
	a.net.Send("n2", []byte("lost: nobody knows where n2 is"))
	a.net.SetPeer(model.Node{ID: "n1", Address: la.Addr().String()}) // itself is no peer
	a.net.SetPeer(model.Node{ID: "n2"})                              // without an address there is nothing to send to
	if got := a.net.Peers(); len(got) != 0 {
		t.Fatalf("peers without an address: %v", got)
	}
	a.net.SetPeer(model.Node{ID: "n2", Address: lb.Addr().String()})
	sendUntil(t, a, b, "n2", "yes")
}

func TestAPeerThatMovedIsFoundAtItsNewAddress(t *testing.T) {
	a, b, _ := pair(t)
	sendUntil(t, a, b, "n2", "up")
	l := listen(t)
	moved := start(t, "n2", l, []model.Node{{ID: "n1", Address: "127.0.0.1:1"}})
	a.net.SetPeer(model.Node{ID: "n2", Address: l.Addr().String()})
	sendUntil(t, a, moved, "n2", "here")
}

func TestANodeWithoutAProperNameIsRefused(t *testing.T) {
	a := start(t, "n1", listen(t), nil)
	for _, name := range []string{"n1", "", "N 2"} {
		if _, err := (receiver{a.net}).admit(&tapedeckv1.StreamRequest{From: name, To: "n1"}); err == nil {
			t.Errorf("%q was let in", name)
		}
	}
	if _, err := (receiver{a.net}).admit(&tapedeckv1.StreamRequest{From: "n2", To: "n3"}); err == nil {
		t.Error("a stream meant for another node was let in")
	}
}

func TestAFullQueueDropsAndSaysSoOnce(t *testing.T) {
	var downs int
	p := &peer{id: "n2", wake: make(chan struct{}, 1), net: &Net{cfg: Config{
		Log: slog.New(slog.DiscardHandler), Down: func(model.NodeID) { downs++ }}}}
	packet := make([]byte, 1<<20)
	for range QueueBytes/len(packet) + 5 {
		p.push(packet)
	}
	if p.bytes > QueueBytes || len(p.queue) != QueueBytes/len(packet)-1 {
		t.Fatalf("%d packets of %d bytes in all are queued", len(p.queue), p.bytes)
	}
	if downs != 1 {
		t.Fatalf("%d times down for one overflow", downs)
	}
	queued := len(p.queue)
	for frame := p.take(); frame != nil; frame = p.take() {
		queued -= len(frame)
	}
	if queued != 0 || p.bytes != 0 {
		t.Fatalf("after taking all, %d packets and %d bytes are missing", queued, p.bytes)
	}
}
