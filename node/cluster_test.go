package node_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core"
	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
	"github.com/tapedeck/tapedeck/disk"
	"github.com/tapedeck/tapedeck/node"
	"github.com/tapedeck/tapedeck/sim/simdisk"
)

// cluster is the smallest thing that can run hosts: one heap of moments, fixed
// delays, no faults but crash and restart. The simulator proper is in sim.
type cluster struct {
	t     *testing.T
	now   model.Mono
	queue todo
	seq   uint64
	nodes map[model.NodeID]*testNode
	names []model.NodeID
	cfg   core.Config
	notes []string      // what nodes had to say
	lane  time.Duration // that work on a lane takes
}

type testNode struct {
	c       *cluster
	id      model.NodeID
	disk    *simdisk.Disk
	folders model.DiskID          // made under this name
	book    map[model.NodeID]bool // whose address this life was told
	host    *node.Host
	life    int
	journal []*node.JournalWork
	busy    bool
	wake    model.Mono
	lanes   map[node.Lane][]node.Work
	replies map[uint64]*reply
	fatal   func(error)   // instead of failing the test
	slow    time.Duration // … that work on segments takes more than on other lanes
	stuck   bool          // the journal makes nothing durable
	got     int           // entries of partitions that came in packets
	full    bool          // writes but the journal's find no space
	wrap    func(disk.FS) disk.FS
}

type reply struct {
	result call.ClientResult
	err    *model.Error
}

type item struct {
	at  model.Mono
	seq uint64
	do  func()
}

type todo []item

func (q todo) Len() int { return len(q) }
func (q todo) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q todo) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *todo) Push(x any)   { *q = append(*q, x.(item)) }
func (q *todo) Pop() any {
	x := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return x
}

func newCluster(t *testing.T, n int, limits core.Limits) *cluster {
	return newClusterWith(t, n, core.Config{Limits: limits})
}

func newClusterWith(t *testing.T, n int, cfg core.Config) *cluster {
	c := &cluster{t: t, nodes: map[model.NodeID]*testNode{}, cfg: cfg, lane: 100 * time.Microsecond}
	for i := range n {
		id := model.NodeID(fmt.Sprintf("n%d", i+1))
		c.names = append(c.names, id)
		c.cfg.Peers = append(c.cfg.Peers, model.Node{ID: id, Address: string(id)})
		c.nodes[id] = &testNode{c: c, id: id, disk: simdisk.New()}
	}
	for _, id := range c.names {
		c.start(id)
	}
	return c
}

func (c *cluster) at(d time.Duration, do func()) {
	c.seq++
	heap.Push(&c.queue, item{c.now.Add(d), c.seq, do})
}

func (c *cluster) start(id model.NodeID) {
	c.t.Helper()
	if err := c.tryStart(id); err != nil {
		c.t.Fatalf("open %s: %v", id, err)
	}
}

func (c *cluster) tryStart(id model.NodeID) error {
	n := c.nodes[id]
	cfg := c.cfg
	cfg.Self, cfg.Seed = id, uint64(len(id))*uint64(id[1])
	files := n.disk.FS()
	if n.wrap != nil {
		files = n.wrap(files)
	}
	n.book = map[model.NodeID]bool{}
	for _, p := range cfg.Peers {
		n.book[p.ID] = true
	}
	h, err := node.Open(node.Config{Core: cfg, FS: scarce{files, n}, ReserveBytes: 32 << 10,
		Journal: simdisk.NewEngine(files, "journal"),
		NewDisk: model.DiskID(id[1])*1000 + n.folders, Random: uint64(n.life),
		Peer: func(p model.Node) { n.book[p.ID] = p.Address != "" }, Notice: func(s string) {
			c.notes = append(c.notes, string(id)+": "+s)
			c.t.Logf("%v %s: %s", time.Duration(c.now), id, s)
		}})
	if err != nil {
		return err
	}
	n.host, n.journal, n.busy, n.wake = h, nil, false, model.Never
	n.lanes, n.replies = map[node.Lane][]node.Work{}, map[uint64]*reply{}
	n.life++
	h.Start(n)
	return nil
}

// wipe starts a node that is down with an empty folder.
func (c *cluster) wipe(id model.NodeID) {
	n := c.nodes[id]
	n.disk = simdisk.New()
	n.folders++
	c.start(id)
}

// add starts a node that the others do not know of.
func (c *cluster) add(id model.NodeID) {
	c.nodes[id] = &testNode{c: c, id: id, disk: simdisk.New()}
	cfg := c.cfg
	c.cfg.Peers = append(append([]model.Node(nil), cfg.Peers...), model.Node{ID: id, Address: string(id)})
	c.start(id)
	c.cfg = cfg
	c.names = append(c.names, id)
}

func (c *cluster) crash(id model.NodeID) {
	n := c.nodes[id]
	n.life++
	n.host = nil
	n.disk.Crash(simdisk.CrashMode{}, rand.New(rand.NewPCG(1, uint64(c.now))))
	for _, p := range c.names {
		if q := c.nodes[p]; q.host != nil {
			q.host.Step(core.PeerDown{Peer: id})
		}
	}
}

// later runs do after a delay unless the node has died meanwhile.
func (n *testNode) later(d time.Duration, do func()) {
	life := n.life
	n.c.at(d, func() {
		if n.life == life && n.host != nil {
			do()
		}
	})
}

func (n *testNode) Now() model.Instant {
	return model.Instant{Mono: n.c.now, Wall: model.Wall(n.c.now) + model.Wall(1700000000*time.Second)}
}

func (n *testNode) Run(lane node.Lane, work node.Work) {
	d := n.c.lane
	if lane.Kind == node.LaneSegment {
		d += n.slow
	}
	n.later(d, func() {
		if then := work(); then != nil {
			then()
		}
	})
}

func (n *testNode) RunJournal(w *node.JournalWork) {
	n.journal = append(n.journal, w)
	if !n.busy {
		n.busy = true
		n.later(300*time.Microsecond, n.doJournal)
	}
}

func (n *testNode) doJournal() {
	if n.stuck {
		return
	}
	ws := n.journal
	n.journal = nil
	if then := n.host.DoJournal(ws); then != nil {
		then()
	}
	if n.busy = len(n.journal) > 0; n.busy {
		n.later(300*time.Microsecond, n.doJournal)
	}
}

func (n *testNode) Wake(at model.Mono) {
	n.wake = at
	if at == model.Never {
		return
	}
	n.later(max(0, at.Sub(n.c.now)), func() {
		if n.wake == at {
			n.wake = model.Never
			n.host.Tick()
		}
	})
}

func (n *testNode) Send(to model.NodeID, packet []byte) {
	if !n.book[to] {
		return // nobody told it where that one is
	}
	data := append([]byte(nil), packet...)
	n.c.at(200*time.Microsecond, func() {
		if q := n.c.nodes[to]; q.host != nil {
			q.gotEntries(data)
			q.host.Step(core.Packet{From: n.id, Data: data})
		}
	})
}

// gotEntries counts the entries of partitions in a packet.
func (n *testNode) gotEntries(data []byte) {
	v, err := core.DecodePacket(data)
	if err != nil {
		n.c.t.Fatal(err)
	}
	for _, r := range v.Raft {
		if r.Group >= model.FirstPartitionGroup {
			n.got += len(r.Message.GetEntries())
		}
	}
}

func (n *testNode) Reply(id uint64, result call.ClientResult, err *model.Error) {
	n.replies[id] = &reply{result, err}
}

func (n *testNode) Fatal(err error) {
	if n.fatal == nil {
		n.c.t.Fatalf("%s: %v", n.id, err)
	}
	n.fatal(err)
}

// until runs the world until cond holds, at most for a virtual minute.
func (c *cluster) until(what string, cond func() bool) {
	c.t.Helper()
	end := c.now.Add(time.Minute)
	for !cond() {
		if len(c.queue) == 0 || c.now > end {
			c.dump(c.names[len(c.names)-1])
			c.t.Fatalf("%v: never saw %s", time.Duration(c.now), what)
		}
		it := heap.Pop(&c.queue).(item)
		c.now = max(c.now, it.at)
		it.do()
	}
}

func (c *cluster) call(id model.NodeID, req call.Client) (call.ClientResult, *model.Error) {
	c.t.Helper()
	c.seq++
	n, rid := c.nodes[id], c.seq
	n.host.Step(core.Request{ID: rid, Call: req, Deadline: c.now.Add(30 * time.Second)})
	c.until(fmt.Sprintf("an answer to %T", req), func() bool { return n.replies[rid] != nil })
	return n.replies[rid].result, n.replies[rid].err
}

func must[T any](t *testing.T) func(r call.ClientResult, err *model.Error) T {
	return func(r call.ClientResult, err *model.Error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%T: %+v", *new(T), err)
		}
		return r.(T)
	}
}

func (c *cluster) createTopic(name string, partitions, replicas uint32) {
	must[*call.Done](c.t)(c.call("n1", &call.Admin{Request: &call.CreateTopic{Name: name, Partitions: partitions,
		Settings: model.TopicSettings{Replicas: replicas}}}))
}

func (c *cluster) publish(via model.NodeID, topic, key, payload string) call.MessageResult {
	c.t.Helper()
	r := must[*call.PublishResult](c.t)(c.call(via, &call.Publish{Topic: topic,
		Messages: []batch.Message{{Key: []byte(key), Payload: []byte(payload)}}}))
	return r.Results[0]
}

func (c *cluster) fetchAll(via model.NodeID, topic string, p model.Partition) []string {
	c.t.Helper()
	var out []string
	at := model.Offset(0)
	for {
		r := must[*call.FetchResult](c.t)(c.call(via, &call.Fetch{Topic: topic, Partition: p, Offset: at}))
		for _, v := range r.Batches {
			ms, err := v.Messages(nil)
			if err != nil {
				c.t.Fatal(err)
			}
			for i, m := range ms {
				if v.Base()+model.Offset(i) >= at {
					out = append(out, string(m.Payload))
				}
			}
		}
		if r.Next == at {
			return out
		}
		at = r.Next
	}
}

func TestPublishPullAckSeekAcrossNodes(t *testing.T) {
	c := newCluster(t, 3, core.Limits{})
	c.createTopic("orders", 2, 3)
	for i := range 20 {
		c.publish(c.names[i%3], "orders", fmt.Sprint("k", i%5), fmt.Sprint("m", i))
	}
	got := append(c.fetchAll("n2", "orders", 0), c.fetchAll("n3", "orders", 1)...)
	if len(got) != 20 {
		t.Fatalf("fetched %d messages: %q", len(got), got)
	}
	must[*call.CreateSubscriptionCallResult](t)(c.call("n2", &call.CreateSubscriptionCall{Topic: "orders", Name: "audit"}))
	pulled := 0
	for range 10 {
		r := must[*call.PullResult](t)(c.call("n3", &call.Pull{Subscription: "orders/audit", Member: "a", Wait: time.Second}))
		ack := &call.Ack{Subscription: "orders/audit", Member: "a", Generation: r.Generation}
		for _, g := range r.Ranges {
			pulled += int(g.To - g.From)
			ack.UpTo = append(ack.UpTo, call.PartitionOffset{Partition: g.Partition, Offset: g.To})
		}
		if len(ack.UpTo) > 0 {
			must[*call.AckCallResult](t)(c.call("n1", ack))
		}
	}
	if pulled != 20 {
		t.Fatalf("pulled %d messages", pulled)
	}
	s := must[*call.GetSubscriptionResult](t)(c.call("n1", &call.GetSubscription{Subscription: "orders/audit"}))
	for _, p := range s.Partitions {
		if p.Lag != 0 {
			t.Fatalf("lag %d in partition %d", p.Lag, p.Partition)
		}
	}
	must[*call.SeekResult](t)(c.call("n1", &call.Seek{Subscription: "orders/audit"}))
	r := must[*call.PullResult](t)(c.call("n3", &call.Pull{Subscription: "orders/audit", Member: "a"}))
	if len(r.Ranges) == 0 || r.Ranges[0].From != 0 {
		t.Fatalf("after a seek to earliest: %+v", r)
	}
}

// What is acked ahead of the cursor is not delivered again, and pulls reach
// beyond it: over small batches and over one large one.
func TestAcksAheadAcrossNodes(t *testing.T) {
	c := newCluster(t, 3, core.Limits{})
	c.createTopic("orders", 1, 3)
	var messages []batch.Message
	for i := range 60 {
		messages = append(messages, batch.Message{Key: []byte("k"), Payload: []byte(fmt.Sprint("m", i))})
	}
	must[*call.PublishResult](t)(c.call("n1", &call.Publish{Topic: "orders", Messages: messages[:40]}))
	for _, m := range messages[40:] {
		c.publish("n2", "orders", "k", string(m.Payload))
	}
	must[*call.CreateSubscriptionCallResult](t)(c.call("n2", &call.CreateSubscriptionCall{Topic: "orders", Name: "audit"}))
	pull := func(via model.NodeID, most uint32) (generation model.Generation, got []model.Offset) {
		r := must[*call.PullResult](t)(c.call(via, &call.Pull{Subscription: "orders/audit", Member: "a", MaxMessages: most}))
		for _, g := range r.Ranges {
			for o := g.From; o < g.To; o++ {
				if !slices.ContainsFunc(g.Batches, func(v batch.View) bool { return v.Base() <= o && o < v.Next() }) {
					t.Fatalf("offset %d of %+v came without its batch", o, g.Range)
				}
				got = append(got, o)
			}
		}
		return r.Generation, got
	}
	generation, _ := pull("n1", 100)
	ack := &call.Ack{Subscription: "orders/audit", Member: "a", Generation: generation}
	for o := model.Offset(1); o < 50; o++ {
		if o != 20 {
			ack.Offsets = append(ack.Offsets, call.PartitionOffset{Offset: o})
		}
	}
	must[*call.AckCallResult](t)(c.call("n2", ack))
	for _, id := range c.names { // the coordinator's memory is lost, what it replicated is not
		c.crash(id)
		c.start(id)
	}
	if _, got := pull("n3", 4); !slices.Equal(got, []model.Offset{0, 20, 50, 51}) {
		t.Fatalf("pulled %v", got)
	}
}

func TestNothingIsLostOverCrashesOfAllNodes(t *testing.T) {
	c := newCluster(t, 3, core.Limits{CheckpointBytes: 4 << 10, SegmentBytes: 2 << 10, WindowEntries: 8,
		HotBytes: 1 << 10})
	c.createTopic("orders", 1, 3)
	producer := must[*call.OpenProducerCallResult](t)(c.call("n1", &call.OpenProducerCall{Name: "p"}))
	want := 0
	send := func(via model.NodeID) {
		t.Helper()
		must[*call.PublishResult](t)(c.call(via, &call.Publish{Topic: "orders", Producer: producer.ID, Epoch: producer.Epoch,
			Sequence: model.Sequence(want), Messages: []batch.Message{{Key: []byte("k"), Payload: []byte(fmt.Sprint(want))}}}))
		want++
	}
	for round := range 12 {
		for range 10 {
			send(c.names[(round+1)%3])
		}
		victim := c.names[round%3]
		c.crash(victim)
		for range 10 {
			send(c.names[(round+1)%3])
		}
		c.start(victim)
	}
	for _, n := range c.names {
		c.crash(n)
	}
	for _, n := range c.names {
		c.start(n)
	}
	got := c.fetchAll("n1", "orders", 0)
	if len(got) != want {
		t.Fatalf("%d of %d messages: %q", len(got), want, got)
	}
	for i, p := range got {
		if p != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, p)
		}
	}
	c.until("equal replicas", func() bool {
		g := c.nodes["n1"].host.Shard().Catalog().Groups()
		last := g[len(g)-1].ID
		var applied []uint64
		for _, n := range c.names {
			if r := c.nodes[n].host.Shard().Replica(last); r != nil {
				applied = append(applied, r.Applied())
			}
		}
		return len(applied) == 3 && applied[0] == applied[1] && applied[1] == applied[2]
	})
}

// scarce is a node's file system without what the journal takes for itself.
type scarce struct {
	disk.FS
	n *testNode
}

type scarceFile struct {
	disk.File
	n *testNode
}

func (s scarce) Create(name string) (disk.File, error) {
	f, err := s.FS.Create(name)
	return scarceFile{f, s.n}, err
}

func (s scarce) Open(name string) (disk.File, error) {
	f, err := s.FS.Open(name)
	return scarceFile{f, s.n}, err
}

func (f scarceFile) WriteAt(b []byte, at int64) (int, error) {
	if f.n.full {
		return 0, disk.ErrNoSpace
	}
	return f.File.WriteAt(b, at)
}
