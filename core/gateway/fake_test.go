package gateway

import (
	"testing"
	"time"

	"github.com/tapedeck/tapedeck/core/batch"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// fake is a Host whose groups are the test.
type fake struct {
	t       *testing.T
	g       *Gateway
	now     model.Mono
	version uint64
	topics  []*model.Topic
	subs    []*model.Subscription
	groups  []*model.Group
	nodes   []*model.Node
	none    bool // no catalog yet
	leaders map[model.GroupID]model.NodeID
	down    map[model.NodeID]bool

	asks      []try
	withdrawn []uint64
	replies   map[uint64]reply
}

type try struct {
	to    model.NodeID
	id    uint64
	group model.GroupID
	req   call.Request
}

type reply struct {
	result call.ClientResult
	err    *model.Error
}

const coordinator = model.FirstCoordinatorGroup

// newFake has topic "orders" with three partitions (groups 1024 to 1026) on
// nodes a, b and c, and subscription "orders/audit".
func newFake(t *testing.T) *fake {
	f := &fake{t: t, version: 10, leaders: map[model.GroupID]model.NodeID{}, down: map[model.NodeID]bool{},
		replies: map[uint64]reply{}}
	replicas := []model.Replica{{ID: 1, Node: "a"}, {ID: 2, Node: "b"}, {ID: 3, Node: "c"}}
	f.groups = []*model.Group{{ID: model.MetaGroup, Kind: model.GroupMeta, Replicas: replicas},
		{ID: coordinator, Kind: model.GroupCoordinator, Replicas: replicas}}
	topic := &model.Topic{ID: 1, Name: "orders", MapVersion: 1}
	for i := range model.GroupID(3) {
		id := model.FirstPartitionGroup + i
		topic.Partitions = append(topic.Partitions, id)
		f.groups = append(f.groups, &model.Group{ID: id, Kind: model.GroupPartition, Topic: 1, Replicas: replicas})
	}
	f.topics = []*model.Topic{topic}
	f.subs = []*model.Subscription{{ID: 1, Topic: 1, TopicName: "orders", Name: "audit", Coordinator: coordinator}}
	f.g = New(Config{TryTimeout: time.Second, LeaderWait: 5 * time.Second, MaxRequests: 8}, f)
	return f
}

func (f *fake) Now() model.Mono        { return f.now }
func (f *fake) Self() model.NodeID     { return "a" }
func (f *fake) Rand() uint64           { return 0 }
func (f *fake) Up(n model.NodeID) bool { return !f.down[n] }
func (f *fake) Catalog() model.Catalog {
	if f.none {
		return nil
	}
	return catalog{f}
}
func (f *fake) Leader(g model.GroupID) (model.NodeID, bool) { n, ok := f.leaders[g]; return n, ok }
func (f *fake) Peers() []model.Node                         { return f.nodesOf("a", "b", "c") }
func (f *fake) Reachable(n model.NodeID) bool               { return !f.down[n] }
func (f *fake) Status() []call.GroupStatus                  { return nil }
func (f *fake) Ask(to model.NodeID, ask uint64, g model.GroupID, req call.Request) {
	f.asks = append(f.asks, try{to, ask, g, req})
}
func (f *fake) Withdraw(_ model.NodeID, ask uint64) { f.withdrawn = append(f.withdrawn, ask) }
func (f *fake) Reply(id uint64, result call.ClientResult, err *model.Error) {
	if _, twice := f.replies[id]; twice {
		f.t.Fatalf("request %d is answered twice", id)
	}
	f.replies[id] = reply{result, err}
}

type catalog struct{ f *fake }

func pick[T any](list []*T, is func(*T) bool) (*T, bool) {
	for _, v := range list {
		if is(v) {
			return v, true
		}
	}
	return nil, false
}

func (c catalog) Version() uint64 { return c.f.version }
func (c catalog) Topic(name string) (*model.Topic, bool) {
	return pick(c.f.topics, func(t *model.Topic) bool { return t.Name == name })
}
func (c catalog) TopicByID(id model.TopicID) (*model.Topic, bool) {
	return pick(c.f.topics, func(t *model.Topic) bool { return t.ID == id })
}
func (c catalog) Subscription(ref string) (*model.Subscription, bool) {
	return pick(c.f.subs, func(s *model.Subscription) bool { return s.Ref() == ref })
}
func (c catalog) SubscriptionByID(id model.SubscriptionID) (*model.Subscription, bool) {
	return pick(c.f.subs, func(s *model.Subscription) bool { return s.ID == id })
}
func (c catalog) Group(id model.GroupID) (*model.Group, bool) {
	return pick(c.f.groups, func(g *model.Group) bool { return g.ID == id })
}
func (c catalog) Topics() []*model.Topic               { return c.f.topics }
func (c catalog) Subscriptions() []*model.Subscription { return c.f.subs }
func (c catalog) Groups() []*model.Group               { return c.f.groups }
func (c catalog) Nodes() []*model.Node                 { return c.f.nodes }

func (f *fake) nodesOf(ids ...model.NodeID) (nodes []model.Node) {
	for _, id := range ids {
		nodes = append(nodes, model.Node{ID: id, Address: string(id) + ":1"})
	}
	return nodes
}

// next takes the oldest try that the test has not looked at.
func (f *fake) next() try {
	f.t.Helper()
	if len(f.asks) == 0 {
		f.t.Fatal("nobody is asked")
	}
	a := f.asks[0]
	f.asks = f.asks[1:]
	return a
}

func (f *fake) answer(a try, resp call.Response) { f.g.Answer(a.id, a.to, resp, nil) }
func (f *fake) refuse(a try, err *model.Error)   { f.g.Answer(a.id, a.to, nil, err) }

// pass lets time pass, tick by tick.
func (f *fake) pass(d time.Duration) {
	for end := f.now.Add(d); f.now < end; {
		f.now = min(end, max(f.g.Next(), f.now+1))
		f.g.Tick()
	}
}

func (f *fake) request(id uint64, c call.Client) {
	f.g.Request(id, c, f.now.Add(10*time.Second))
}

func (f *fake) result(id uint64) call.ClientResult {
	f.t.Helper()
	r, ok := f.replies[id]
	if !ok || r.err != nil {
		f.t.Fatalf("request %d: answered %v, error %v", id, ok, r.err)
	}
	return r.result
}

func (f *fake) refused(id uint64, reason model.Reason) *model.Error {
	f.t.Helper()
	r, ok := f.replies[id]
	if !ok || r.err == nil || r.err.Reason != reason {
		f.t.Fatalf("request %d: answered %v, result %+v, error %v; want %q", id, ok, r.result, r.err, reason)
	}
	return r.err
}

// idle checks that nothing of ended requests is left.
func (f *fake) idle() {
	f.t.Helper()
	if g := f.g; len(g.requests)+len(g.asks)+len(g.dues)+len(g.waiters) != 0 {
		f.t.Fatalf("left behind: %d requests, %d asks, %d dues, %d waiters", len(g.requests), len(g.asks),
			len(g.dues), len(g.waiters))
	}
}

func notLeader(hint model.NodeID) *model.Error {
	err := model.Reasoned(model.FailedPrecondition, model.ReasonNotLeader, 0, "not here")
	err.Leader = hint
	return err
}

// stored is a run of batches of one message each, at [from, to).
func stored(from, to model.Offset) (run []byte) {
	for o := from; o < to; o++ {
		v := batch.View(batch.Encode([]batch.Message{{Payload: []byte{byte(o)}}}, batch.Options{}))
		v.Stamp(o, model.Wall(o))
		run = append(run, v...)
	}
	return run
}
