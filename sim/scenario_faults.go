package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/checker"
	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/choice"
	"github.com/tapedeck/tapedeck/core/model"
)

// group finds what a scenario names: meta, TOPIC/PARTITION, or the coordinator
// of a subscription as subscription:TOPIC/NAME.
func (s *scenario) group(c *command, name string) model.GroupID {
	if name == "meta" {
		return model.MetaGroup
	}
	if id, known := s.groups[name]; known {
		return id
	}
	if ref, ok := strings.CutPrefix(name, "subscription:"); ok {
		result, err := s.askNow(s.client(c, "setup"), &call.GetSubscription{Subscription: ref}, 5*time.Second)
		if err != nil {
			c.fail("%s: %v", name, err)
		}
		s.groups[name] = result.(*call.GetSubscriptionResult).Subscription.Coordinator
		return s.groups[name]
	}
	c.fail("%q is neither meta, nor topic/partition, nor subscription:topic/name", name)
	return 0
}

// learnGroups notes the group of each partition of a topic.
func (s *scenario) learnGroups(c *command, topic string) {
	result, err := s.askNow(s.client(c, "setup"), &call.GetTopic{Name: topic}, 5*time.Second)
	if err != nil {
		c.fail("describing %s: %v", topic, err)
	}
	for p, id := range result.(*call.GetTopicResult).Topic.Partitions {
		s.groups[topic+"/"+itoa(p)] = id
	}
}

// leads is the node that leads a group behind an open own-term gate; of two that
// think so, the one of the higher term.
func (w *World) leaderOf(id model.GroupID) *simNode {
	var best *simNode
	term := uint64(0)
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		if r := n.host.Shard().Replica(id); r != nil {
			if v := r.View(); v.Leading && v.Term > term {
				best, term = n, v.Term
			}
		}
	}
	return best
}

// await GROUP [within=10s] waits for a leader, whoever it is.
func (s *scenario) await(c *command) {
	id := s.group(c, c.arg("group"))
	if s.waitLeader(id, c.duration("within", 10*time.Second)) == nil {
		s.print("no leader")
	}
}

// leader GROUP NODE [within=10s] stalls whoever else leads until that node does.
func (s *scenario) leader(c *command) {
	id, target := s.group(c, c.arg("group")), s.node(c, c.arg("node"))
	within := c.duration("within", 10*time.Second)
	for range 40 {
		n := s.waitLeader(id, within)
		if n == target {
			s.w.run(time.Second, nil) // let what the election disturbed settle
			if s.w.leaderOf(id) == target {
				return
			}
			continue
		}
		if n == nil {
			break
		}
		n.pause()
		s.w.run(within, func() bool { m := s.w.leaderOf(id); return m != nil && m != n })
		n.resume()
		s.w.run(500*time.Millisecond, nil)
	}
	c.fail("%s does not come to lead", target.id)
}

func (s *scenario) waitLeader(id model.GroupID, within time.Duration) *simNode {
	reachable := func() *simNode {
		if n := s.w.leaderOf(id); n != nil && !n.paused {
			return n
		}
		return nil
	}
	s.w.run(within, func() bool { return reachable() != nil })
	return reachable()
}

// terms GROUP prints each node's role, and whether its term is durable. Numbers
// would change with every change of timing, and say nothing.
func (s *scenario) terms(c *command) {
	id := s.group(c, c.arg("group"))
	for _, n := range s.w.nodes {
		if !n.up {
			s.print("%s down", n.id)
			continue
		}
		if r := n.host.Shard().Replica(id); r != nil {
			v := r.View()
			durable := "durable"
			if v.DurableTerm != v.Term {
				durable = "not durable"
			}
			s.print("%s %s, its term %s", n.id, strings.TrimPrefix(v.Role.String(), "State"), durable)
		}
	}
}

// pairs reads from= and to= lists into directed pairs.
func (s *scenario) pairs(c *command) (out [][2]model.NodeID) {
	both := c.choice("both", "false", "true") == "true"
	for from := range strings.SplitSeq(c.str("from", ""), ",") {
		for to := range strings.SplitSeq(c.str("to", ""), ",") {
			a, b := s.node(c, from).id, s.node(c, to).id
			out = append(out, [2]model.NodeID{a, b})
			if both {
				out = append(out, [2]model.NodeID{b, a})
			}
		}
	}
	return out
}

// hold from= to= [both=true] keeps packets back, in order.
func (s *scenario) hold(c *command) {
	for _, p := range s.pairs(c) {
		s.w.network("hold", p[0], p[1])
		s.w.net.Hold(p[0], p[1])
	}
}

// release from= to= [both=true] delivers what is held.
func (s *scenario) release(c *command) {
	for _, p := range s.pairs(c) {
		s.w.network("release", p[0], p[1])
		s.w.net.Release(p[0], p[1])
	}
}

// cut from= to= [both=true] loses packets, those in flight, too.
func (s *scenario) cut(c *command) {
	for _, p := range s.pairs(c) {
		s.w.cutOneWay(p[0], p[1])
	}
}

// heal [from= to= [both=true]] mends links; all of them if none is named.
func (s *scenario) heal(c *command) {
	if !c.has("from") {
		s.w.net.HealAll(s.w.ids)
		return
	}
	for _, p := range s.pairs(c) {
		s.w.healOneWay(p[0], p[1])
	}
}

// isolate NODE cuts a node off from all others, both ways.
func (s *scenario) isolate(c *command) {
	n := s.node(c, c.arg("node"))
	for _, p := range s.w.ids {
		if p != n.id {
			s.w.cutBoth(n.id, p)
		}
	}
}

// crash NODE|all [unsynced=lose|keep|torn] stops a process.
func (s *scenario) crash(c *command) {
	keep := unsynced(c.choice("unsynced", string(loseUnsynced), string(keepUnsynced), string(tearUnsynced)))
	for _, n := range s.nodes(c) {
		n.crash(keep)
	}
}

// nodes is one node, or all.
func (s *scenario) nodes(c *command) []*simNode {
	name := c.arg("node")
	if name == "all" {
		return s.w.nodes
	}
	return []*simNode{s.node(c, name)}
}

// restart NODE|all starts processes that are down.
func (s *scenario) restart(c *command) {
	for _, n := range s.nodes(c) {
		if n.up {
			c.fail("%s is running; crash it first", n.id)
		}
		n.start()
	}
}

func (s *scenario) pause(c *command) {
	for _, n := range s.nodes(c) {
		n.pause()
	}
}

func (s *scenario) resume(c *command) {
	for _, n := range s.nodes(c) {
		n.resume()
	}
}

// disk NODE ok|slow|stalled: a stalled journal completes nothing.
func (s *scenario) disk(c *command) {
	n := s.node(c, c.arg("node"))
	switch state := c.arg("state"); state {
	case "ok":
		n.slow = false
		n.unstall()
	case "slow":
		n.slow = true
	case "stalled":
		n.stalled = true
	default:
		c.fail("%q is none of ok, slow, stalled", state)
	}
}

// clock NODE jump=-3s moves a wall clock.
func (s *scenario) clock(c *command) {
	n, by := s.node(c, c.arg("node")), c.duration("jump", 0)
	n.clock.jump(s.w.loop.now, by)
	s.w.fault(n.id, kindClock, "wall clock jumps by %v", by)
}

// choose SITE [one=1] takes the rare way at a site of core/choice in one of so
// many of its hits; one=0 leaves it to the code again.
func (s *scenario) choose(c *command) {
	site := choice.Site(c.arg("site"))
	if _, known := choice.Sites()[site]; !known {
		c.fail("there is no site %q; there are %v", site, slices.Sorted(maps.Keys(choice.Sites())))
	}
	if s.w.choices == nil {
		s.w.choices = Choices{}
	}
	s.w.choices[site] = c.num("one", 1)
}

// run DURATION lets virtual time pass.
func (s *scenario) advance(c *command) { s.w.run(c.parseDuration(c.arg("duration")), nil) }

// check mends everything, waits for the cluster to come to rest, reads back
// every log and cursor, and prints the verdicts' line.
func (s *scenario) check(c *command) {
	s.w.net.HealAll(s.w.ids)
	s.w.choices = nil
	s.w.healHarm()
	for _, n := range s.w.nodes {
		n.slow = false
		n.unstall()
		n.resume()
		if !n.up && !n.harm.retired {
			n.start()
		}
	}
	s.final = checker.Final{}
	stuck := s.readBack(s.client(c, "final"))
	if stuck == "" {
		stuck = s.eventually(30*time.Second, s.w.unsettled)
	}
	if stuck == "" {
		stuck = s.eventually(30*time.Second, s.w.diverging)
	}
	if s.w.broken != nil {
		return // printed by execute
	}
	report := checker.Check(&s.rec.history, s.final)
	s.print("%s", report.Line())
	for _, f := range report.Failures() {
		s.print("%s: %s", f.Name, f.Detail)
	}
	switch {
	case report.Result() == checker.Failed:
		s.exit = SafetyBroken
	case stuck != "":
		s.print("%s", stuck)
		s.exit = max(s.exit, LivenessBroken)
	}
}
