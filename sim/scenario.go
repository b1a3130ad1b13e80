package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tapedeck/tapedeck/core/call"
	"github.com/tapedeck/tapedeck/core/model"
)

// Scenario is the outcome of replaying a file.
type Scenario struct {
	// Rewritten is the file with the output that was seen.
	Rewritten string
	// Differences, one per block whose output differed; empty: as expected.
	Differences []string
	// Exit is the class of what the last check found.
	Exit int
	Hash uint64
}

// scenario is a replay under way.
type scenario struct {
	*run
	out       []string
	exit      int
	calls     map[string]*client // by name
	producers map[string]*namedProducer
	publishes int
	marks     map[string]model.Wall
	groups    map[string]model.GroupID // by name
	line      func(string)
	plan      *Options // of a swarm; nil: there is a cluster
	hash      uint64   // of the plan's run
}

// handlers has one function per command.
var handlers map[string]func(s *scenario, c *command)

func init() {
	handlers = map[string]func(s *scenario, c *command){
		"cluster":   (*scenario).cluster,
		"topic":     (*scenario).topic,
		"subscribe": (*scenario).subscribe,
		"publish":   (*scenario).publish,
		"open":      (*scenario).open,
		"fetch":     (*scenario).fetch,
		"pull":      (*scenario).pull,
		"ack":       (*scenario).ack,
		"nack":      (*scenario).nack,
		"extend":    (*scenario).extend,
		"heartbeat": (*scenario).heartbeat,
		"seek":      (*scenario).seek,
		"leave":     (*scenario).leave,
		"snapshot":  (*scenario).snapshot,
		"describe":  (*scenario).describe,
		"mark":      (*scenario).mark,
		"await":     (*scenario).await,
		"leader":    (*scenario).leader,
		"hold":      (*scenario).hold,
		"release":   (*scenario).release,
		"cut":       (*scenario).cut,
		"heal":      (*scenario).heal,
		"isolate":   (*scenario).isolate,
		"crash":     (*scenario).crash,
		"restart":   (*scenario).restart,
		"pause":     (*scenario).pause,
		"resume":    (*scenario).resume,
		"disk":      (*scenario).disk,
		"clock":     (*scenario).clock,
		"choose":    (*scenario).choose,
		"run":       (*scenario).advance,
		"terms":     (*scenario).terms,
		"check":     (*scenario).check,
	}
}

// Commands lists the scenario language's commands, by name.
func Commands() []string {
	var names []string
	for name := range handlers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// RunScenario replays a file. An error says what in the file cannot be
// understood, and on which line; output that differs is in Differences.
func RunScenario(text string, line func(string)) (res Scenario, err error) {
	blocks, tail, err := parseScenario(text)
	if err != nil {
		return res, err
	}
	if len(blocks) == 0 || blocks[0].commands[0].name != "cluster" && blocks[0].commands[0].name != "swarm" {
		return res, fmt.Errorf("line 1: the first command must be cluster or swarm, with a seed")
	}
	s := &scenario{calls: map[string]*client{}, producers: map[string]*namedProducer{},
		marks: map[string]model.Wall{}, groups: map[string]model.GroupID{}, line: line}
	var b strings.Builder
	for i := range blocks {
		bl := &blocks[i]
		s.out = nil
		for j := range bl.commands {
			if err := s.execute(&bl.commands[j]); err != nil {
				return res, err
			}
		}
		if !slices.Equal(s.out, bl.expected) {
			res.Differences = append(res.Differences, fmt.Sprintf("line %d: expected\n\t%s\ngot\n\t%s", bl.line,
				strings.Join(bl.expected, "\n\t"), strings.Join(s.out, "\n\t")))
		}
		writeBlock(&b, bl, s.out)
	}
	for _, l := range tail {
		b.WriteString(l + "\n")
	}
	res.Rewritten, res.Exit, res.Hash = b.String(), s.exit, s.hash
	if s.run != nil {
		res.Hash = s.w.trace.Hash()
	}
	return res, nil
}

func writeBlock(b *strings.Builder, bl *block, out []string) {
	for _, l := range bl.lead {
		b.WriteString(l + "\n")
	}
	for _, c := range bl.commands {
		b.WriteString(c.text + "\n")
	}
	b.WriteString(dashes + "\n")
	for _, l := range out {
		b.WriteString(l + "\n")
	}
}

// execute runs one command.
func (s *scenario) execute(c *command) (err error) {
	h, known := handlers[c.name]
	if !known {
		return fmt.Errorf("line %d, column %d: %q is not a command; there are %s", c.line, c.column, c.name,
			strings.Join(Commands(), ", "))
	}
	switch {
	case c.name == "cluster" || c.name == "swarm":
	case s.plan != nil && !swarmCommand(c.name):
		return c.errorf("does not go with a swarm")
	case s.plan == nil && s.run == nil:
		return c.errorf("needs a cluster first")
	case s.plan == nil && c.name != "topic" && swarmCommand(c.name):
		return c.errorf("goes with a swarm only")
	}
	defer func() {
		if p := recover(); p != nil {
			e, ok := p.(commandError)
			if !ok {
				panic(p)
			}
			err = e.err
		}
	}()
	h(s, c)
	if err := c.leftOver(); err != nil {
		return err
	}
	if s.run != nil && s.w.broken != nil {
		s.print("VIOLATED %s", s.w.broken.Invariant)
		s.exit = SafetyBroken
	}
	return nil
}

func (s *scenario) print(format string, args ...any) {
	s.out = append(s.out, fmt.Sprintf(format, args...))
}

// calm is a world in which nothing happens by chance: fixed delays, no faults.
func calm(c *command) Options {
	ms := time.Millisecond
	if !c.has("seed") {
		c.fail("lacks seed=; write one, so that the replay is the same everywhere")
	}
	o := Options{Seed: c.num("seed", 0), Nodes: int(c.num("nodes", 3)), Coordinators: uint32(c.num("coordinators", 1)),
		Liveness: 60 * time.Second,
		Network:  NetworkOptions{MinDelay: ms, MaxDelay: ms, ClientMinDelay: ms / 2, ClientMaxDelay: ms / 2},
		Disk:     DiskOptions{MinSync: ms, MaxSync: ms, MinWrite: ms / 10, MaxWrite: ms / 10},
	}
	if o.Nodes < 1 || o.Nodes > 9 {
		c.fail("nodes=%d; from 1 to 9 are possible", o.Nodes)
	}
	o.Limits.FreeLow = c.num("free", 1)
	o.Limits.FreeHigh = 2 * o.Limits.FreeLow
	o.Limits.WindowEntries = int(c.num("window", 0))
	o.Limits.HotBytes = int(c.num("hot", 0))
	o.Limits.SegmentBytes = int64(c.num("segment", 0))
	o.Limits.CheckpointBytes = int64(c.num("checkpoint", 0))
	return o
}

func (s *scenario) cluster(c *command) {
	if s.run != nil || s.plan != nil {
		c.fail("is there already; a file has one cluster")
	}
	o := calm(c)
	w := newWorld(o, s.line)
	s.run = &run{w: w, counts: map[string]uint32{}}
	s.rec = &recorder{w: w}
	for _, n := range w.nodes {
		n.start()
	}
	if c.has("topic") {
		s.makeTopic(c, c.str("topic", ""))
	}
}

func (s *scenario) topic(c *command) {
	if s.plan != nil {
		s.planTopic(c)
		return
	}
	s.makeTopic(c, c.arg("name"))
}

func (s *scenario) makeTopic(c *command, name string) {
	t := TopicOptions{Name: name, Partitions: uint32(c.num("partitions", 1)), Replicas: uint32(c.num("replicas", 3))}
	s.demand(c, &call.Admin{Request: &call.CreateTopic{Name: name, Owner: "sim", Partitions: t.Partitions,
		Settings: model.TopicSettings{Replicas: t.Replicas}}})
	s.counts[name] = t.Partitions
	s.w.opts.Topics = append(s.w.opts.Topics, t)
	s.learnGroups(c, name)
	for p := range t.Partitions {
		s.waitLeader(s.groups[name+"/"+itoa(int(p))], 10*time.Second)
	}
}

// client is the named client, made at its first use. Clients talk to the node
// they are told to, or else to the first that is up.
func (s *scenario) client(c *command, otherwise string) *client {
	name := c.str("client", otherwise)
	cl := s.calls[name]
	if cl == nil {
		cl = s.newClient(name)
		s.calls[name] = cl
	}
	if at := c.str("at", ""); at != "" {
		cl.node = s.node(c, at).index
		return cl
	}
	cl.node = 0
	for i, n := range s.w.nodes {
		if n.up && !n.paused && !s.alone(n) {
			cl.node = i
			break
		}
	}
	return cl
}

// alone says that a node is cut off from every other.
func (s *scenario) alone(n *simNode) bool {
	for _, p := range s.w.ids {
		if p != n.id && !s.w.net.IsCut(n.id, p) && !s.w.net.IsCut(p, n.id) {
			return false
		}
	}
	return len(s.w.ids) > 1
}

func (s *scenario) node(c *command, id string) *simNode {
	n := s.w.node(model.NodeID(id))
	if n == nil {
		c.fail("there is no node %q", id)
	}
	return n
}

// ask makes a call and runs until it is answered or given up.
func (s *scenario) askNow(cl *client, q call.Client, timeout time.Duration) (call.ClientResult, *model.Error) {
	var result call.ClientResult
	var failure *model.Error
	answered := false
	cl.ask(q, timeout, func(r call.ClientResult, err *model.Error) { result, failure, answered = r, err, true })
	s.w.run(timeout+time.Second, func() bool { return answered })
	if !answered { // an invariant broke meanwhile
		failure = model.Reasoned(model.Unavailable, model.ReasonUnknownOutcome, 0, "the run has ended")
	}
	return result, failure
}

// demand makes a call that has to succeed, again and again.
func (s *scenario) demand(c *command, q call.Client) {
	cl := s.client(c, "setup")
	if stuck := s.all(cl, 30*time.Second, c.name, q); stuck != "" {
		c.fail("%s", stuck)
	}
}

// failure prints an error as people see it: its reason, else its code.
func failure(err *model.Error) string {
	switch {
	case err.Reason == model.ReasonUnknownOutcome:
		return "pending"
	case err.Reason != "":
		return string(err.Reason)
	}
	return fmt.Sprintf("error %d: %s", err.Code, err.Message)
}

func itoa(n int) string { return strconv.Itoa(n) }

func uitoa(n uint64) string { return strconv.FormatUint(n, 10) }
