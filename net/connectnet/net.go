// Package connectnet carries packets between nodes over Connect streams.
//
// It owns one long-lived HTTP/2 stream per direction: the sender dials. Each
// peer has a bounded send queue; what waits there goes out in frames of up to
// FrameBytes, a larger packet in a frame of its own. A full queue drops the
// packet, and so does a peer that cannot be reached: whoever sends must be able
// to lose packets. Queue bounds are in bytes, times are on the host's clock.
//
// Invariants:
//   - packets of one stream arrive in the order sent; a packet is never changed
//     nor repeated by this package;
//   - whenever packets to or from a peer may have been lost, Down is called for
//     it, after the last packet delivered before the loss.
package connectnet

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/net/transport"
)

// Bounds of the transport.
const (
	// FrameBytes is how much a frame gathers, and the HTTP/2 frame size.
	FrameBytes = 1 << 20
	// QueueBytes is what may wait for one peer.
	QueueBytes = 32 << 20
	// ReadMaxBytes is the largest frame taken: one packet of a full raft message and its envelope.
	ReadMaxBytes = 64 << 20

	packetOverhead = 32 // counted for each queued packet, so that empty ones are bounded, too
	backoffMin     = 20 * time.Millisecond
	backoffMax     = time.Second
	pingAfter      = 2 * time.Second
	pingTimeout    = 3 * time.Second
)

// HTTP2 is the protocol tuning of both ends of a peer stream.
func HTTP2() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxReadFrameSize:              FrameBytes,
		MaxReceiveBufferPerConnection: 4<<20 - 1,
		MaxReceiveBufferPerStream:     4<<20 - 1,
		SendPingTimeout:               pingAfter,
		PingTimeout:                   pingTimeout,
	}
}

// Config is what a transport needs.
type Config struct {
	Self  model.NodeID
	Peers []model.Node // this node may be among them
	// Deliver takes a packet; it must not block for long. The packet is the receiver's.
	Deliver func(from model.NodeID, packet []byte)
	// Down says that packets from or to the peer may have been lost.
	Down func(peer model.NodeID)
	Log  *slog.Logger
}

// Net is a running transport.
type Net struct {
	cfg    Config
	client *http.Client
	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.RWMutex
	peers map[model.NodeID]*peer
}

var _ transport.Transport = (*Net)(nil)

// New starts a sender per peer. Nodes that join later are told by SetPeer; what
// they send is taken before that, too.
func New(cfg Config) *Net {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	n := &Net{
		cfg:    cfg,
		client: &http.Client{Transport: wholeEnvelopes{&http.Transport{Protocols: protocols, HTTP2: HTTP2()}}},
		peers:  map[model.NodeID]*peer{},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	for _, p := range cfg.Peers {
		n.SetPeer(p)
	}
	return n
}

// SetPeer says where a node serves: one that joined, or that moved. What waits
// for it goes to the new address.
func (n *Net) SetPeer(p model.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.ID == n.cfg.Self || p.Address == "" || n.ctx.Err() != nil {
		return
	}
	if old := n.peers[p.ID]; old != nil {
		old.move(p.Address)
		return
	}
	q := &peer{net: n, id: p.ID, wake: make(chan struct{}, 1), address: p.Address}
	n.peers[p.ID] = q
	n.done.Go(q.run)
}

// Peers lists the nodes that packets can be sent to, in no order.
func (n *Net) Peers() []model.NodeID {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return slices.Collect(maps.Keys(n.peers))
}

func (n *Net) peer(id model.NodeID) *peer {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.peers[id]
}

// Mount serves the receiving side.
func (n *Net) Mount(mux *http.ServeMux) {
	server := connect.NewServer()
	tapedeckv1connect.RegisterPeerServiceHandler(server, receiver{n})
	connecthttp.Mount(largeReads{CutReads(n.ctx, mux)}, server,
		connecthttp.WithCompressors(), connecthttp.WithReadMaxBytes(ReadMaxBytes))
}

// Send queues a packet. It never blocks; the packet is the transport's from now on.
func (n *Net) Send(to model.NodeID, packet []byte) {
	if p := n.peer(to); p != nil {
		p.push(packet)
	}
}

// Queued is the number of bytes waiting for a peer.
func (n *Net) Queued(to model.NodeID) int {
	p := n.peer(to)
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// Close ends all streams, both ways, and waits for the senders.
func (n *Net) Close() {
	n.mu.Lock()
	n.cancel()
	n.mu.Unlock()
	n.done.Wait()
	n.client.CloseIdleConnections()
}

// peer is the sending side of one peer.
type peer struct {
	net  *Net
	id   model.NodeID
	wake chan struct{} // has one element while the queue may hold something

	mu       sync.Mutex
	address  string
	cut      context.CancelFunc // ends the stream there is; nil: there is none
	queue    [][]byte
	bytes    int  // of queue, overheads included
	dropping bool // the last push found the queue full
}

// move makes the next stream go to another address, and ends the one there is.
func (p *peer) move(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == address {
		return
	}
	p.address = address
	if p.cut != nil {
		p.cut()
	}
}

// dial makes a client for the peer's address; cut ends the stream it is for.
func (p *peer) dial(cut context.CancelFunc) *connect.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	return connect.NewClient(connecthttp.NewTransport(p.net.client, "http://"+p.address,
		connecthttp.WithCompressors(), connecthttp.WithSendMaxBytes(ReadMaxBytes)))
}

func (p *peer) push(packet []byte) {
	p.mu.Lock()
	size := len(packet) + packetOverhead
	if p.bytes+size > QueueBytes {
		first := !p.dropping
		p.dropping = true
		p.mu.Unlock()
		if first {
			p.net.cfg.Log.Warn("send queue is full: packets are dropped", "peer", p.id, "bytes", QueueBytes)
			p.net.cfg.Down(p.id)
		}
		return
	}
	p.dropping = false
	p.queue = append(p.queue, packet)
	p.bytes += size
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take removes up to a frame's worth from the queue's front.
func (p *peer) take() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, size := 0, 0
	for n < len(p.queue) && (n == 0 || size+len(p.queue[n]) <= FrameBytes) {
		size += len(p.queue[n])
		n++
	}
	if n == 0 {
		return nil
	}
	frame := p.queue[:n:n]
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil
	}
	p.bytes -= size + n*packetOverhead
	return frame
}

func (p *peer) clear() {
	p.mu.Lock()
	p.queue, p.bytes = nil, 0
	p.mu.Unlock()
}

// run keeps a stream open until the transport is closed. What is queued while
// there is none is dropped at the next attempt: it would arrive out of date.
func (p *peer) run() {
	backoff := backoffMin
	for p.net.ctx.Err() == nil {
		began, up := time.Now(), false
		err := p.connect(func() {
			up = true
			p.net.cfg.Log.Debug("stream to peer is up", "peer", p.id)
		})
		if p.net.ctx.Err() != nil {
			return
		}
		if up && time.Since(began) > backoffMax {
			// A stream that is refused looks up for a moment, too: it resets nothing.
			backoff = backoffMin
		}
		p.net.cfg.Log.Debug("stream to peer is down", "peer", p.id, "cause", err)
		p.clear()
		p.net.cfg.Down(p.id)
		pause := backoff/2 + rand.N(backoff)
		backoff = min(2*backoff, backoffMax)
		select {
		case <-p.net.ctx.Done():
		case <-time.After(pause):
		}
	}
}

var streamSpec = connect.Spec{
	StreamType: connect.StreamTypeClient,
	Procedure:  tapedeckv1connect.PeerServiceStreamProcedure,
	Schema:     tapedeckv1.File_tapedeck_v1_peer_proto.Services().ByName("PeerService").Methods().ByName("Stream"),
}

// connect opens a stream and sends until it breaks. opened is called once the
// peer has let the stream in.
func (p *peer) connect(opened func()) error {
	ctx, cancel := context.WithCancel(p.net.ctx)
	defer cancel()
	s, err := p.dial(cancel).CallClientStream(ctx, streamSpec)
	if err != nil {
		return fmt.Errorf("open stream: %w", err)
	}
	defer s.Close()
	hello := &tapedeckv1.StreamRequest{From: string(p.net.cfg.Self), To: string(p.id)}
	if err := s.Send(hello); err != nil {
		return fmt.Errorf("greet: %w", p.verdict(s, err))
	}
	// The answer comes only when the peer ends the stream.
	ended := make(chan error, 1)
	go func() {
		var res tapedeckv1.StreamResponse
		ended <- s.Receive(&res)
	}()
	opened()
	for {
		for frame := p.take(); frame != nil; frame = p.take() {
			if err := s.Send(&tapedeckv1.StreamRequest{Packets: frame}); err != nil {
				cancel()
				if end := <-ended; end != nil && connect.CodeOf(end) != connect.CodeCanceled {
					err = end
				}
				return fmt.Errorf("send: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			if err == nil {
				err = fmt.Errorf("the peer ended the stream")
			}
			return err
		case <-p.wake:
		}
	}
}

// verdict prefers what the peer said to the mere fact that sending failed.
func (p *peer) verdict(s connect.ClientStream, sendErr error) error {
	var res tapedeckv1.StreamResponse
	if err := s.Receive(&res); err != nil {
		return err
	}
	return sendErr
}
