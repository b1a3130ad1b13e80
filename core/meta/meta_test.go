package meta

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/group"
	"github.com/tapedeck/tapedeck/core/model"
)

// Every case runs on three nodes with the topics "orders" (2 partitions, 3
// replicas) and "bills", and the subscription "orders/mail".
var refusals = []struct {
	name string
	req  call.Request
	code model.Code
	says string // part of the message
}{
	{"bad name", &call.CreateTopic{Name: "Orders"}, model.InvalidArgument, `"Orders"`},
	{"two replicas", &call.CreateTopic{Name: "x", Settings: model.TopicSettings{Replicas: 2}},
		model.InvalidArgument, "use 1, 3 or 5"},
	{"five replicas on three nodes", &call.CreateTopic{Name: "x", Settings: model.TopicSettings{Replicas: 5}},
		model.FailedPrecondition, "the cluster has 3 nodes; pass replicas 3"},
	{"too many partitions", &call.CreateTopic{Name: "x", Partitions: model.MaxPartitions + 1},
		model.InvalidArgument, "at most 10000"},
	{"retention too long", &call.CreateTopic{Name: "x", Settings: model.TopicSettings{RetentionTime: 31 * day}},
		model.InvalidArgument, "retention_time"},
	{"local longer than all", &call.CreateTopic{Name: "x", Settings: model.TopicSettings{LocalRetentionTime: 8 * day}},
		model.InvalidArgument, "local_retention_time"},
	{"message too small", &call.CreateTopic{Name: "x", Settings: model.TopicSettings{MaxMessageBytes: 1023}},
		model.InvalidArgument, "max_message_bytes"},
	{"message too big", &call.CreateTopic{Name: "x", Settings: model.TopicSettings{MaxMessageBytes: 1<<20 + 1}},
		model.InvalidArgument, "max_message_bytes"},
	{"other settings", &call.CreateTopic{Name: "orders", Partitions: 3},
		model.AlreadyExists, "partitions is 2, not 3"},
	{"other owner", &call.CreateTopic{Name: "orders", Partitions: 2, Owner: "me"},
		model.AlreadyExists, `owner is "", not "me"`},
	{"update of none", &call.UpdateTopic{Name: "ordres"}, model.NotFound, `did you mean "orders"?`},
	{"lower partitions", &call.UpdateTopic{Name: "orders", Partitions: 1}, model.FailedPrecondition, "not lowered"},
	{"other replicas", &call.UpdateTopic{Name: "orders", Settings: model.TopicSettings{Replicas: 1}},
		model.Unimplemented, "replicas"},
	{"delete of none", &call.DeleteTopic{Name: "order"}, model.NotFound, `did you mean "orders"?`},
	{"delete with subscriptions", &call.DeleteTopic{Name: "orders"}, model.FailedPrecondition, "orders/mail"},
	{"subscription of none", &call.CreateSubscription{Topic: "zebra", Name: "s"},
		model.NotFound, `"zebra" does not exist`},
	{"bad start", &call.CreateSubscription{Topic: "orders", Name: "s", Start: model.Start{Kind: model.StartOffsets}},
		model.InvalidArgument, "start"},
	{"ack deadline", subscription(model.SubscriptionSettings{AckDeadline: time.Millisecond}),
		model.InvalidArgument, "ack_deadline"},
	{"session timeout", subscription(model.SubscriptionSettings{SessionTimeout: 11 * time.Minute}),
		model.InvalidArgument, "session_timeout"},
	{"attempts alone", subscription(model.SubscriptionSettings{MaxAttempts: 3}),
		model.InvalidArgument, "dead_letter_topic"},
	{"dead letters to itself", subscription(model.SubscriptionSettings{MaxAttempts: 3, DeadLetterTopic: "orders"}),
		model.InvalidArgument, "circle: orders → orders"},
	{"dead letters to none", subscription(model.SubscriptionSettings{MaxAttempts: 3, DeadLetterTopic: "bill"}),
		model.NotFound, `did you mean "bills"?`},
	{"filter", subscription(model.SubscriptionSettings{Filter: "attributes.a = 'b'"}),
		model.InvalidArgument, "filter: at character 14"},
	{"expiry", subscription(model.SubscriptionSettings{ExpireWhenUnusedIn: day}), model.Unimplemented, "expire"},
	{"other start", &call.CreateSubscription{Topic: "orders", Name: "mail", Start: model.Start{Kind: model.StartLatest}},
		model.AlreadyExists, "start is earliest, not latest"},
	{"other topic meanwhile", &call.CreateSubscription{Topic: "orders", TopicID: 99, Name: "s"},
		model.Unavailable, "deleted"},
	{"more starts than partitions",
		&call.CreateSubscription{Topic: "orders", Name: "s", StartsAt: make([]model.Offset, 3)},
		model.Unavailable, "deleted"},
	{"update of no subscription", &call.UpdateSubscription{Subscription: "orders/mial"},
		model.NotFound, `did you mean "orders/mail"?`},
	{"not a reference", &call.DeleteSubscription{Subscription: "mail"}, model.InvalidArgument, "topic/name"},
	{"subscription's topic", &call.DeleteSubscription{Subscription: "ordes/mail"},
		model.NotFound, `did you mean "orders"?`},
	{"mode", &call.UpdateSubscription{Subscription: "orders/mail",
		Settings: model.SubscriptionSettings{Mode: model.ModeShared}}, model.FailedPrecondition, "mode"},
	{"update to attempts alone", &call.UpdateSubscription{Subscription: "orders/mail",
		Settings: model.SubscriptionSettings{MaxAttempts: 2}}, model.InvalidArgument, "dead_letter_topic"},
	{"producer's name", &call.OpenProducer{}, model.InvalidArgument, "name"},
	{"not meta's", &call.Leave{}, model.Internal, "does not serve"},
}

func subscription(s model.SubscriptionSettings) *call.CreateSubscription {
	return &call.CreateSubscription{Topic: "orders", Name: "s", Settings: s}
}

func prepared(t testing.TB) (*host, *Machine) {
	h, m := newHost(), New(founding(3))
	h.must(t, m, &call.CreateTopic{Name: "orders", Partitions: 2})
	h.must(t, m, &call.CreateTopic{Name: "bills"})
	h.must(t, m, &call.CreateSubscription{Topic: "orders", TopicID: 1, Name: "mail", StartsAt: []model.Offset{3, 4}})
	return h, m
}

func TestRefusals(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			h, m := prepared(t)
			before := m.Snapshot()
			_, err := h.do(t, m, c.req)
			if err == nil || err.Code != c.code || !strings.Contains(err.Message, c.says) {
				t.Fatalf("got %v, want code %d with %q", err, c.code, c.says)
			}
			m.state.version = 3 // a refused entry changes the version and nothing else
			if !bytes.Equal(before, m.Snapshot()) {
				t.Fatal("a refused request changed the state")
			}
		})
	}
}

func TestTopicLifecycle(t *testing.T) {
	h, m := prepared(t)
	c := m.Catalog()
	orders, _ := c.Topic("orders")
	if orders.ID != 1 || orders.MapVersion != 1 || orders.Created != 1000 ||
		orders.Settings != (model.TopicSettings{Replicas: 3, RetentionTime: 7 * day, MaxMessageBytes: 1 << 20}) {
		t.Fatalf("created %+v", orders)
	}
	if got := orders.Partitions; len(got) != 2 || got[0] != 1024 || got[1] != 1025 {
		t.Fatalf("partitions %v", got)
	}
	done := h.must(t, m, &call.CreateTopic{Name: "orders", Partitions: 2, Settings: model.TopicSettings{Replicas: 3}})
	if v := done.(*call.Done).MapVersion; v != h.index || v != c.Version() {
		t.Fatalf("the same again answered version %d at %d", v, h.index)
	}
	h.must(t, m, &call.UpdateTopic{Name: "orders", Settings: model.TopicSettings{RetentionBytes: 5}})
	if now, _ := c.Topic("orders"); now.MapVersion != 1 || now.Settings.RetentionBytes != 5 ||
		now.Settings.RetentionTime != 7*day || orders.Settings.RetentionBytes != 0 {
		t.Fatalf("updated %+v, held %+v", now, orders)
	}
	h.must(t, m, &call.UpdateTopic{Name: "orders", Partitions: 5,
		Settings: model.TopicSettings{RetentionBytes: 1<<64 - 1}})
	now, _ := c.TopicByID(1)
	if now.MapVersion != 2 || len(now.Partitions) != 5 || now.Settings.RetentionBytes != 0 || len(orders.Partitions) != 2 {
		t.Fatalf("raised %+v, held %+v", now, orders)
	}
	for p, id := range now.Partitions {
		if g, ok := c.Group(id); !ok || g.Topic != 1 || g.Partition != model.Partition(p) || len(g.Replicas) != 3 {
			t.Fatalf("partition %d is %+v", p, g)
		}
	}
	h.must(t, m, &call.DeleteTopic{Name: "orders", Force: true})
	if len(c.Topics()) != 1 || len(c.Subscriptions()) != 0 || len(c.Groups()) != 1+4+1 {
		t.Fatalf("left %v, %v, %v", c.Topics(), c.Subscriptions(), c.Groups())
	}
	h.must(t, m, &call.CreateTopic{Name: "orders"})
	if again, _ := c.Topic("orders"); again.ID != 3 || again.Partitions[0] != 1030 {
		t.Fatalf("made anew %+v", again)
	}
}

func TestSubscriptionLifecycle(t *testing.T) {
	h, m := prepared(t)
	d, ok := m.Catalog().Subscription("orders/mail")
	want := model.FirstCoordinatorGroup + model.GroupID(xxhash.Sum64String("orders/mail")%4)
	if !ok || d.ID != 1 || d.Coordinator != want || d.StartsAt[1] != 4 ||
		d.Settings.AckDeadline != 30*time.Second || d.Settings.SessionTimeout != 10*time.Second {
		t.Fatalf("created %+v, want coordinator %d", d, want)
	}
	// The start is looked up anew by a retry; only the wish is compared.
	h.must(t, m, &call.CreateSubscription{Topic: "orders", TopicID: 1, Name: "mail", StartsAt: []model.Offset{9, 9}})
	h.must(t, m, &call.UpdateSubscription{Subscription: "orders/mail",
		Settings: model.SubscriptionSettings{AckDeadline: time.Minute}})
	now, _ := m.Catalog().SubscriptionByID(1)
	if now.Settings.AckDeadline != time.Minute || now.Settings.SessionTimeout != 10*time.Second || now.StartsAt[0] != 3 {
		t.Fatalf("updated %+v", now)
	}
	h.must(t, m, &call.DeleteSubscription{Subscription: "orders/mail"})
	h.must(t, m, &call.CreateSubscription{Topic: "orders", Name: "mail"})
	if again, _ := m.Catalog().Subscription("orders/mail"); again.ID != 2 {
		t.Fatalf("made anew %+v", again)
	}
}

func TestDeadLetterCircleOverSeveralTopics(t *testing.T) {
	h, m := prepared(t)
	h.must(t, m, &call.CreateTopic{Name: "dead"})
	bills, _ := m.state.Topic("bills")
	dead, _ := m.state.Topic("dead")
	m.state.putSubscription(&model.Subscription{ID: 8, Topic: bills.ID, TopicName: "bills", Name: "s",
		Settings: model.SubscriptionSettings{DeadLetterTopic: "dead"}})
	m.state.putSubscription(&model.Subscription{ID: 9, Topic: dead.ID, TopicName: "dead", Name: "s",
		Settings: model.SubscriptionSettings{DeadLetterTopic: "orders"}})
	_, err := h.do(t, m, subscription(model.SubscriptionSettings{MaxAttempts: 3, DeadLetterTopic: "bills"}))
	const circle = "orders → bills → dead → orders"
	if err == nil || err.Code != model.InvalidArgument || !strings.Contains(err.Message, circle) {
		t.Fatalf("got %v", err)
	}
}

// Without it the subscription would stand still: only force deletes it.
func TestADeadLetterTopicIsDeletedByForceOnly(t *testing.T) {
	h, m := prepared(t)
	h.must(t, m, &call.CreateTopic{Name: "dead"})
	h.must(t, m, &call.UpdateSubscription{Subscription: "orders/mail",
		Settings: model.SubscriptionSettings{MaxAttempts: 3, DeadLetterTopic: "dead"}})
	refused := func(says ...string) {
		t.Helper()
		_, err := h.do(t, m, &call.DeleteTopic{Name: "dead"})
		if err == nil || err.Code != model.FailedPrecondition {
			t.Fatalf("deleted: %v", err)
		}
		for _, part := range says {
			if !strings.Contains(err.Message, part) {
				t.Fatalf("%q is not in %q", part, err.Message)
			}
		}
		if _, ok := m.Catalog().Topic("dead"); !ok {
			t.Fatal("refused, and gone")
		}
	}
	refused(`topic "dead" is the dead-letter topic of the subscription orders/mail; `, "name another first, or pass force")
	h.must(t, m, &call.CreateSubscription{Topic: "dead", Name: "look", StartsAt: []model.Offset{0}})
	refused("has the subscription dead/look; delete", "; and it is the dead-letter topic of the subscription orders/mail")
	h.must(t, m, &call.DeleteTopic{Name: "dead", Force: true})
	if _, ok := m.Catalog().Topic("dead"); ok || len(m.Catalog().Subscriptions()) != 1 {
		t.Fatal("force deletes it and its own subscriptions, and no other")
	}
	// What to do is true: another may be named, and then this one is free.
	h.must(t, m, &call.CreateTopic{Name: "dead"})
	h.must(t, m, &call.UpdateSubscription{Subscription: "orders/mail",
		Settings: model.SubscriptionSettings{DeadLetterTopic: "bills"}})
	h.must(t, m, &call.DeleteTopic{Name: "dead"})
}

func TestProducers(t *testing.T) {
	h, m := prepared(t)
	for i, want := range []call.ProducerOpened{{ID: 1, Epoch: 1}, {ID: 2, Epoch: 1}, {ID: 1, Epoch: 2}} {
		name := []string{"a", "b", "a"}[i]
		if got := h.must(t, m, &call.OpenProducer{Name: name}).(*call.ProducerOpened); *got != want {
			t.Fatalf("%s opened as %+v, want %+v", name, got, want)
		}
	}
}

func TestClockOfTheLogNeverGoesBack(t *testing.T) {
	h, m := newHost(), New(founding(3))
	created := func(name string) model.Wall {
		h.must(t, m, &call.CreateTopic{Name: name})
		topic, _ := m.Catalog().Topic(name)
		return topic.Created
	}
	h.wall = 50
	if got := created("a"); got != 50 {
		t.Fatalf("created at %d", got)
	}
	h.wall = 40
	if got := created("b"); got != 50 {
		t.Fatalf("clock went back to %d", got)
	}
	h.wall, h.trusted = 90, false
	if got := created("c"); got != 50 {
		t.Fatalf("a clock that is not trusted moved the log's to %d", got)
	}
}

func TestWithoutLeadership(t *testing.T) {
	h, m := newHost(), New(founding(3))
	h.leading = false
	for ref, req := range []call.Request{&call.CreateTopic{Name: "a"}, &call.Barrier{}, &call.OpenProducer{Name: "p"}} {
		m.Handle(h, group.Ref(ref), req)
		if err := h.replies[group.Ref(ref)].err; err == nil || err.Reason != model.ReasonNotLeader {
			t.Errorf("%T: %v", req, err)
		}
	}
	if len(h.entries)+len(h.reads) != 0 {
		t.Fatal("something was proposed or read")
	}
}

func TestLeadershipLost(t *testing.T) {
	h, m := newHost(), New(founding(3))
	m.LeaderStart(h)
	m.Handle(h, 1, &call.CreateTopic{Name: "a"})
	m.Handle(h, 2, &call.Barrier{})
	m.Handle(h, 3, &call.CreateTopic{Name: "b"})
	m.Cancel(h, 3)
	m.LeaderStop(h)
	h.leading = false
	if err := h.replies[1].err; err == nil || err.Reason != model.ReasonUnknownOutcome || !err.Retryable() {
		t.Errorf("proposed change: %v", err)
	}
	if err := h.replies[2].err; err == nil || err.Reason != model.ReasonNotLeader {
		t.Errorf("barrier: %v", err)
	}
	h.commit(m) // the next leader commits it after all; Reply would panic on a second one
	if _, ok := m.Catalog().Topic("a"); !ok || len(h.replies) != 2 {
		t.Errorf("replies %v", h.replies)
	}
}

func TestAnswersComeAtApplyInOrder(t *testing.T) {
	h, m := newHost(), New(founding(3))
	m.LeaderStart(h)
	m.Handle(h, 1, &call.CreateTopic{Name: "a"})
	m.Handle(h, 2, &call.CreateTopic{Name: "b"})
	m.Handle(h, 3, &call.CreateTopic{Name: "a", Partitions: 2})
	m.Cancel(h, 2)
	if len(h.replies) != 0 {
		t.Fatal("answered before apply")
	}
	h.commit(m)
	if h.replies[1].err != nil || h.replies[1].resp.(*call.Done).MapVersion != 1 {
		t.Errorf("first: %+v", h.replies[1])
	}
	if _, there := h.replies[2]; there {
		t.Error("a cancelled request was answered")
	}
	if err := h.replies[3].err; err == nil || err.Code != model.AlreadyExists {
		t.Errorf("third: %v", err)
	}
}

func TestBarrier(t *testing.T) {
	h, m := prepared(t)
	m.Handle(h, 1, &call.Barrier{})
	m.Handle(h, 2, &call.Barrier{})
	m.Cancel(h, 2)
	m.ReadIndexDone(h, 2)
	m.ReadIndexDone(h, 1)
	if got := h.replies[1].resp.(*call.Done).MapVersion; got != 3 || len(h.replies) != 1 || len(h.reads) != 2 {
		t.Fatalf("barrier at %d; replies %v", got, h.replies)
	}
}

func TestBoundedWaiting(t *testing.T) {
	h, m := newHost(), New(founding(3))
	for ref := range group.Ref(maxWaiting) {
		m.Handle(h, ref, []call.Request{&call.Barrier{}, &call.OpenProducer{Name: "p"}}[ref%2])
	}
	m.Handle(h, maxWaiting, &call.Barrier{})
	if err := h.replies[maxWaiting].err; err == nil || err.Reason != model.ReasonThrottled || err.RetryAfter == 0 {
		t.Fatalf("one too many: %v", err)
	}
	h.commit(m)
	h.full = true
	m.Handle(h, maxWaiting+1, &call.OpenProducer{Name: "q"})
	if err := h.replies[maxWaiting+1].err; err == nil || err.Reason != model.ReasonThrottled {
		t.Fatalf("dropped proposal: %v", err)
	}
	if len(m.pending) != 0 {
		t.Fatal("a dropped proposal is waited for")
	}
}

func TestApplyRefusesForeignEntries(t *testing.T) {
	_, m := prepared(t)
	defer func() {
		if recover() == nil {
			t.Fatal("an entry that cannot be decoded was passed over")
		}
	}()
	m.Apply(newHost(), group.Entry{Index: 9, Data: []byte{99}})
}

func TestVersionIsTheEntrysIndex(t *testing.T) {
	h, m := prepared(t)
	h.index = 40 // entries without data are not applied
	done := h.must(t, m, &call.CreateTopic{Name: "late"}).(*call.Done)
	if done.MapVersion != 41 || m.Catalog().Version() != 41 {
		t.Fatalf("answered %d, catalog is at %d", done.MapVersion, m.Catalog().Version())
	}
}

func TestWhatWasReadStays(t *testing.T) {
	h, m := prepared(t)
	topics := m.Catalog().Topics()
	bills, orders := topics[0], topics[1]
	h.must(t, m, &call.UpdateTopic{Name: "bills", Partitions: 3})
	h.must(t, m, &call.DeleteTopic{Name: "orders", Force: true})
	h.must(t, m, &call.CreateTopic{Name: "a"})
	if len(topics) != 2 || topics[0] != bills || topics[1] != orders || len(bills.Partitions) != 1 {
		t.Fatalf("a list that was read became %v", topics)
	}
}

func TestRestoreKeepsEveryField(t *testing.T) {
	h, m := prepared(t)
	h.must(t, m, &call.CreateTopic{Name: "full", Owner: "me", Partitions: 2, Settings: model.TopicSettings{
		Replicas: 1, RetentionTime: 9 * day, RetentionBytes: 8, LocalRetentionTime: day, MaxMessageBytes: 2000}})
	h.must(t, m, &call.CreateSubscription{Topic: "full", Name: "s", StartsAt: []model.Offset{5},
		Start: model.Start{Kind: model.StartTime, Time: 77}, Settings: model.SubscriptionSettings{
			AckDeadline: 2 * time.Second, SessionTimeout: 3 * time.Second, MinBackoff: time.Second,
			MaxBackoff: time.Minute, MaxInFlightMember: 4, MaxInFlight: 5}})
	h.must(t, m, &call.OpenProducer{Name: "p"})
	again := New(founding(1))
	if err := again.Restore(m.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(m.state, again.state) {
		t.Fatalf("restored\n%+v, was\n%+v", again.state, m.state)
	}
}
