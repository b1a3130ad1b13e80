package live

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/disk/record"
	"github.com/tapedeck/tapedeck/net/connectnet"
	"github.com/tapedeck/tapedeck/node"
)

// Times of a node's service.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	readyPoll         = 25 * time.Millisecond
	// reserveBytes are kept back on each data folder's disk for when it is full.
	reserveBytes = 16 << 20
	// diskPoll is how often free disk space is looked at.
	diskPoll = time.Second
	// lastWrites is left for answers on their way when the last call has ended.
	lastWrites = 100 * time.Millisecond
)

// Config is what a node needs.
type Config struct {
	// ID is this node's name, one of Peers.
	ID model.NodeID
	// Peers are all nodes of the cluster with the addresses they serve at.
	Peers []model.Node
	// Bootstrap founds the cluster without asking the peers; see core.Config.
	Bootstrap bool
	// FS is the data folder, locked by the caller, who closes it after Stop.
	FS disk.FS
	// Journal is an engine over the folder "journal" in the data folder.
	Journal record.Engine
	// Listener is where clients and peers are served; the node closes it.
	Listener net.Listener
	// AllowedOrigins are web origins whose pages may call: "https://host:port",
	// "localhost" for any port and scheme of this machine, "*" for any.
	AllowedOrigins []string
	// Log takes what the node has to say; nil: slog.Default.
	Log *slog.Logger
	// Timing and Limits of the shard; zero fields take the defaults.
	Timing core.Timing
	Limits core.Limits
}

// Node is a running node.
type Node struct {
	cfg     Config
	log     *slog.Logger
	host    host
	loop    *loop
	net     *connectnet.Net
	server  *http.Server
	client  *connect.Server // PubSubService and AdminService
	served  *served         // what the listener serves
	metrics *metrics
	book    *directory
	gate    gate
	taken   atomic.Int64 // bytes of the requests of calls inside

	alive    context.Context // ends when what still serves must end
	die      context.CancelFunc
	draining chan struct{} // closed when the node begins to stop
	ready    chan struct{} // closed once the leader of meta is known
	failed   chan struct{} // closed when the node cannot go on
	stopped  chan struct{} // closed when all is over
	failure  error         // why failed was closed
	failOnce sync.Once
	stopOnce sync.Once
	stopErr  error
	helpers  sync.WaitGroup
}

// Start opens the data folder and serves. The error says what to do about it.
func Start(cfg Config) (*Node, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	self := false
	for _, p := range cfg.Peers {
		if err := model.ValidateName("peers", string(p.ID)); err != nil {
			return nil, err
		}
		self = self || p.ID == cfg.ID
	}
	if !self {
		return nil, fmt.Errorf("node %q is not among the peers: name every node of the cluster, this one too", cfg.ID)
	}
	meter := newMetrics(cfg.ID)
	book := newDirectory(cfg.Peers)
	h, err := node.Open(node.Config{
		Core: core.Config{
			Self: cfg.ID, Peers: cfg.Peers, Bootstrap: cfg.Bootstrap, Seed: randomID(),
			Timing: cfg.Timing, Limits: cfg.Limits, Unpack: unpack,
		},
		FS: cfg.FS, Journal: meter.journal(cfg.Journal), NewDisk: model.DiskID(randomID()), Random: randomID(),
		ReserveBytes: reserveBytes,
		Peer:         book.set,
		Notice:       func(text string) { cfg.Log.Warn(text, "node", cfg.ID) },
	})
	if err != nil {
		return nil, err
	}
	return start(cfg, h, meter, book), nil
}

// start runs a node around a host.
func start(cfg Config, h host, meter *metrics, book *directory) *Node {
	n := &Node{
		cfg: cfg, host: h, metrics: meter, book: book, log: cfg.Log.With("node", cfg.ID),
		draining: make(chan struct{}), ready: make(chan struct{}),
		failed: make(chan struct{}), stopped: make(chan struct{}),
	}
	n.alive, n.die = context.WithCancel(context.Background())
	n.loop = newLoop(h, n.send, n.fail)
	n.net = connectnet.New(connectnet.Config{
		Self: cfg.ID, Peers: cfg.Peers, Log: n.log,
		Deliver: n.loop.deliver,
		Down:    func(peer model.NodeID) { n.loop.event(core.PeerDown{Peer: peer}) },
	})
	book.moved = n.net.SetPeer
	meter.watch(n)
	n.server = n.newServer()
	go n.loop.run()
	n.helpers.Go(n.serve)
	n.helpers.Go(n.awaitReady)
	n.helpers.Go(n.watchDisk)
	return n
}

// randomID is a random number that is not 0.
func randomID() uint64 {
	var b [8]byte
	for {
		_, _ = cryptorand.Read(b[:]) // never fails
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

func (n *Node) send(to model.NodeID, packet []byte) { n.net.Send(to, packet) }

// fail stops stepping at once; whoever runs the node sees Failed and calls Kill.
func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.failure = err
		close(n.failed)
		n.log.Error("this node cannot go on", "error", err)
	})
}

func (n *Node) serve() {
	if err := n.server.Serve(n.cfg.Listener); !errors.Is(err, http.ErrServerClosed) {
		n.fail(fmt.Errorf("serve at %s: %w", n.cfg.Listener.Addr(), err))
	}
}

// ends says whether the node is stopping or stopped.
func (n *Node) ends() bool {
	select {
	case <-n.draining:
		return true
	case <-n.failed:
		return true
	default:
		return false
	}
}

// awaitReady closes ready once this node knows a leader of the meta group.
func (n *Node) awaitReady() {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	patience := firstWait
	for quiet := time.Now(); !n.ends(); {
		result, _ := n.ask(ctx, &call.GetCluster{}, 0)
		r, ok := result.(*call.GetClusterResult)
		if ok && metaLeader(r) != "" {
			close(n.ready)
			return
		}
		if ok && time.Since(quiet) >= patience {
			n.log.Warn(waitingFor(r))
			quiet, patience = time.Now(), min(2*patience, lastWait)
		}
		select {
		case <-ticker.C:
		case <-n.draining:
		case <-n.failed:
		}
	}
}

func metaLeader(r *call.GetClusterResult) model.NodeID {
	for i := range r.Groups {
		if r.Groups[i].Kind == model.GroupMeta {
			return r.Groups[i].Leader
		}
	}
	return ""
}

// watchDisk tells the shard how much room there is.
func (n *Node) watchDisk() {
	ticker := time.NewTicker(diskPoll)
	defer ticker.Stop()
	for !n.ends() {
		if free, err := n.cfg.FS.Free(); err == nil {
			n.loop.event(core.DiskSpace{Free: free})
		}
		select {
		case <-ticker.C:
		case <-n.draining:
		case <-n.failed:
		}
	}
}

// WaitReady waits until the node can serve: it knows who leads the meta group.
func (n *Node) WaitReady(ctx context.Context) error {
	select {
	case <-n.ready:
		return nil
	case <-n.failed:
		return n.failure
	case <-n.stopped:
		return errors.New("the node was stopped")
	case <-ctx.Done():
		return fmt.Errorf("node %s does not know a leader yet: are most of its peers up? %w", n.cfg.ID, ctx.Err())
	}
}

// Failed is closed when the node cannot go on; Failure says why.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Failure is why the node cannot go on; nil unless Failed is closed.
func (n *Node) Failure() error {
	select {
	case <-n.failed:
		return n.failure
	default:
		return nil
	}
}

// ID is the node's name.
func (n *Node) ID() model.NodeID { return n.cfg.ID }

// URL is where the node serves: its listener's address or, if that is one for
// all of the machine's, the one its peers know.
func (n *Node) URL() string {
	if at, ok := n.cfg.Listener.Addr().(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		return "http://" + n.book.address(n.cfg.ID)
	}
	return "http://" + n.cfg.Listener.Addr().String()
}

// Stop ends the node gracefully: new calls are refused, streams and long-polls
// end with UNAVAILABLE and a retry hint, other calls may end until ctx does.
// What is on its way to the disk gets there.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() {
		close(n.draining)
		grace, cut := context.WithCancel(ctx)
		defer cut()
		var down sync.WaitGroup
		down.Go(func() {
			// Connections end by themselves as they fall idle, or are cut.
			if err := n.server.Shutdown(grace); err != nil {
				_ = n.server.Close()
			}
		})
		select {
		case <-n.gate.wait():
		case <-ctx.Done():
			n.log.Warn("calls were cut off by the stop", "calls", n.gate.inside())
		case <-n.failed:
		}
		n.die()
		n.net.Close()
		time.AfterFunc(lastWrites, cut)
		down.Wait()
		n.end()
	})
	return n.stopErr
}

// Kill ends the node at once, as if the process had been killed, but for what
// was already handed to the disk.
func (n *Node) Kill() {
	n.stopOnce.Do(func() {
		close(n.draining)
		n.die()
		_ = n.server.Close()
		n.net.Close()
		n.end()
	})
}

func (n *Node) end() {
	n.loop.closeLanes()
	if err := n.host.Close(); err != nil && n.Failure() == nil {
		n.stopErr = fmt.Errorf("close the data folder: %w", err)
	}
	close(n.stopped)
	n.helpers.Wait()
	n.log.Info("node stopped")
}

// gate counts requests inside.
type gate struct {
	mu    sync.Mutex
	count int
	empty chan struct{} // made by wait, closed when the last request leaves
}

func (g *gate) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count++
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count--; g.count == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// wait gives a channel that is closed as soon as nobody is inside.
func (g *gate) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	empty := make(chan struct{})
	if g.count == 0 {
		close(empty)
	} else {
		g.empty = empty
	}
	return empty
}

func (g *gate) inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}
