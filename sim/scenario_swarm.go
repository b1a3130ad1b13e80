package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tapedeck/tapedeck/core/model"
)

func init() {
	for name, h := range map[string]func(s *scenario, c *command){
		"swarm":   (*scenario).swarm,
		"strike":  (*scenario).strike,
		"verdict": (*scenario).verdict,
		"work":    (*scenario).planWork,
	} {
		handlers[name] = h
	}
	for _, g := range new(Options).knobs() {
		handlers[g.name] = func(s *scenario, c *command) { s.turn(c, g.name) }
	}
}

// swarmCommands take a run's options down before verdict runs it; topic is the
// only other command that goes with them.
func swarmCommand(name string) bool {
	if name == "strike" || name == "verdict" || name == "topic" || name == "work" {
		return true
	}
	return slices.ContainsFunc(new(Options).knobs(), func(g knobGroup) bool { return g.name == name })
}

// swarm seed= [nodes=3] [coordinators=1] [safety=40s] [liveness=1m] begins the
// description of a run with clients and faults of its own.
func (s *scenario) swarm(c *command) {
	if s.run != nil || s.plan != nil {
		c.fail("is there already; a file has one cluster or one swarm, in its first line")
	}
	if !c.has("seed") {
		c.fail("lacks seed=; write one, so that the replay is the same everywhere")
	}
	o := Calm(c.num("seed", 0))
	o.Nodes, o.Coordinators = int(c.num("nodes", 3)), uint32(c.num("coordinators", 1))
	o.Safety, o.Liveness = c.duration("safety", o.Safety), c.duration("liveness", o.Liveness)
	if o.Nodes < 1 || o.Nodes > 9 {
		c.fail("nodes=%d; from 1 to 9 are possible", o.Nodes)
	}
	s.plan = &o
}

// planTopic TOPIC [partitions=1] [replicas=3] [retention=] [bytes=]
func (s *scenario) planTopic(c *command) {
	s.plan.Topics = append(s.plan.Topics, TopicOptions{Name: c.arg("name"), Partitions: uint32(c.num("partitions", 1)),
		Replicas: uint32(c.num("replicas", 3)), RetentionTime: c.duration("retention", 0),
		RetentionBytes: c.num("bytes", 0)})
}

// planWork [shared=false] [key_ordered=false] [attempts=] [member_limit=] [limit=] [workers=] [consumers=]
// [seekers=] [poison=] is one more subscription of the first topic.
func (s *scenario) planWork(c *command) {
	s.plan.Work = append(s.plan.Work, WorkOptions{Shared: c.choice("shared", "false", "true") == "true",
		KeyOrdered: c.choice("key_ordered", "false", "true") == "true", Attempts: uint32(c.num("attempts", 0)),
		MemberLimit: uint32(c.num("member_limit", 0)), Limit: uint32(c.num("limit", 0)),
		Workers: int(c.num("workers", 0)), Consumers: int(c.num("consumers", 0)), Seekers: int(c.num("seekers", 0)),
		Poison: c.num("poison", 0)})
}

// turn sets the options of one concern.
func (s *scenario) turn(c *command, group string) {
	for _, g := range s.plan.knobs() {
		if g.name != group {
			continue
		}
		for _, k := range g.knobs {
			if v := c.str(k.name, ""); v != "" {
				if err := k.set(v); err != nil {
					c.fail("%s=%v", k.name, err)
				}
			}
		}
	}
}

// planNode reads a node's name. A strike on one that joins comes in time or not.
func (s *scenario) planNode(c *command) model.NodeID {
	name := c.arg("node")
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "n")); err != nil || n < 1 || n > 99 || name[0] != 'n' {
		c.fail("%q is not a node's name, such as n1", name)
	}
	return model.NodeID(name)
}

// strike KIND [NODE [PEER]] at= [for=] and what the kind needs
func (s *scenario) strike(c *command) {
	k := Strike{Kind: c.arg("kind")}
	if !slices.Contains(StrikeKinds(), k.Kind) {
		c.fail("%q is none of %s", k.Kind, strings.Join(StrikeKinds(), ", "))
	}
	k.At, k.For, k.By = c.duration("at", 0), c.duration("for", 0), c.duration("by", 0)
	k.Again, k.Stays = c.choice("again", "false", "true") == "true", c.choice("stays", "false", "true") == "true"
	k.Free, k.Where, k.Draw = c.num("free", 0), c.str("where", ""), c.num("draw", 0)
	if k.Kind != strikePowerCut {
		k.Node = s.planNode(c)
	}
	if slices.Contains([]string{strikeCut, strikeOneWay, strikeHold, strikeReset}, k.Kind) {
		k.Peer = s.planNode(c)
	}
	k.Call = c.str("call", "")
	if _, known := diskCalls[k.Call]; !known && k.Kind == strikeFail {
		c.fail("call=%s is none of read, sync, write", k.Call)
	}
	if v := c.str("unsynced", ""); v != "" {
		k.Unsynced = strings.Split(v, ",")
		for _, u := range k.Unsynced {
			if !slices.Contains([]string{string(loseUnsynced), string(keepUnsynced), string(tearUnsynced)}, u) {
				c.fail("unsynced=%s is none of lose, keep, torn", u)
			}
		}
	}
	s.plan.Strikes = append(s.plan.Strikes, k)
}

// verdict runs what was described and prints what it came to.
func (s *scenario) verdict(c *command) {
	if len(s.plan.Topics) == 0 {
		c.fail("needs a topic")
	}
	for _, t := range s.plan.Topics {
		if int(t.Replicas) > s.plan.Nodes || t.Replicas == 0 || t.Partitions == 0 {
			c.fail("topic %s: its %d replicas need as many nodes, and it needs a partition", t.Name, t.Replicas)
		}
	}
	r := Run(*s.plan, s.line)
	s.exit, s.hash = max(s.exit, r.Exit), r.Hash
	s.print("%s", r.Finding())
}

// Finding is what a run came to without what differs from run to run of the same
// fault: "passed", or the exit class and which promise was broken.
func (r *Result) Finding() string {
	kind, _, _ := strings.Cut(r.Why, ": ")
	switch {
	case r.Broken != nil:
		return fmt.Sprintf("%s: %s", ExitName(r.Exit), r.Broken.Invariant)
	case r.Exit == SafetyBroken:
		return fmt.Sprintf("%s: %s", ExitName(r.Exit), kind)
	}
	return ExitName(r.Exit)
}
