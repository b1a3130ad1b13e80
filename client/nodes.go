package client

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	tapedeckv1 "github.com/tapedeck/tapedeck/api/tapedeck/v1"
	"github.com/tapedeck/tapedeck/api/tapedeck/v1/tapedeckv1connect"
	"github.com/tapedeck/tapedeck/core/session"
)

const (
	maxResponseBytes = 64 << 20
	// passOver is how long a node that could not be reached is asked last.
	passOver = 3 * time.Second
	// maxLeaders bounds what is remembered of leaders; beyond it all is learned anew.
	maxLeaders = 100_000
)

// node is an address and the calls it takes.
type node struct {
	address string // base URL
	pubsub  tapedeckv1connect.PubSubServiceClient
	admin   tapedeckv1connect.AdminServiceClient
	badTill time.Time // guarded by nodes.mu
}

// nodes chooses whom to ask.
type nodes struct {
	http   *http.Client
	scheme string
	direct bool // leaders are not asked directly

	mu      sync.Mutex
	seeds   []*node // as configured
	known   map[string]*node
	leaders map[partitionKey]*node
	next    int // of seeds, asked first
}

type partitionKey struct {
	topic     string
	partition uint32
}

func newNodes(addresses []string, hc *http.Client, direct bool) (*nodes, error) {
	if len(addresses) == 0 {
		return nil, fmt.Errorf("no address: give at least one node's, such as http://127.0.0.1:7070")
	}
	n := &nodes{http: hc, direct: direct, known: map[string]*node{}, leaders: map[partitionKey]*node{}}
	for _, a := range addresses {
		base, scheme, err := baseURL(a)
		if err != nil {
			return nil, err
		}
		if n.scheme == "" {
			n.scheme = scheme
		}
		n.seeds = append(n.seeds, n.at(base))
	}
	return n, nil
}

// baseURL completes host:port to a URL.
func baseURL(address string) (base, scheme string, err error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", "", fmt.Errorf("address %q is neither host:port nor http://host:port", address)
	}
	return strings.TrimSuffix(u.String(), "/"), u.Scheme, nil
}

// defaultHTTP keeps connections alive and one request per connection:
// HTTP/1.1 beats h2c for unary calls. Batches are packed already.
func defaultHTTP() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 5 * time.Second,
		DisableCompression:  true,
		Protocols:           protocols,
		ReadBufferSize:      64 << 10,
		WriteBufferSize:     64 << 10,
	}}
}

// at returns the node of a base URL; callers hold mu, or are alone.
func (n *nodes) at(base string) *node {
	if known := n.known[base]; known != nil {
		return known
	}
	c := connect.NewClient(connecthttp.NewTransport(n.http, base,
		connecthttp.WithCompressors(), connecthttp.WithReadMaxBytes(maxResponseBytes)))
	made := &node{
		address: base, pubsub: tapedeckv1connect.NewPubSubServiceClient(c), admin: tapedeckv1connect.NewAdminServiceClient(c),
	}
	n.known[base] = made
	return made
}

// order lists the nodes to ask, best first.
func (n *nodes) order(r session.Route) []*node {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	var good, bad []*node
	add := func(x *node) {
		for _, y := range append(good, bad...) {
			if x == y {
				return
			}
		}
		if now.Before(x.badTill) {
			bad = append(bad, x)
		} else {
			good = append(good, x)
		}
	}
	if r.HasPartition {
		if leader := n.leaders[partitionKey{r.Topic, uint32(r.Partition)}]; leader != nil {
			add(leader)
		}
	}
	for i := range n.seeds {
		add(n.seeds[(n.next+i)%len(n.seeds)])
	}
	return append(good, bad...)
}

// failed notes that a node did not answer: others are asked first for a while.
func (n *nodes) failed(x *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x.badTill = time.Now().Add(passOver)
	for k, leader := range n.leaders {
		if leader == x {
			delete(n.leaders, k)
		}
	}
	if n.seeds[n.next] == x {
		n.next = (n.next + 1) % len(n.seeds)
	}
}

func (n *nodes) succeeded(x *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x.badTill = time.Time{}
}

// learn notes where a partition's leader serves; empty: it is not known.
func (n *nodes) learn(topic string, partition uint32, address string) {
	if n.direct {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	k := partitionKey{topic, partition}
	base, _, err := baseURL(n.scheme + "://" + address)
	if address == "" || err != nil {
		delete(n.leaders, k)
		return
	}
	if len(n.leaders) >= maxLeaders || len(n.known) >= maxLeaders {
		clear(n.leaders)
	}
	n.leaders[k] = n.at(base)
}

func (n *nodes) learnTopic(topic string, partitions []*tapedeckv1.PartitionInfo) {
	for _, p := range partitions {
		if p.GetLeaderAddress() != "" {
			n.learn(topic, p.GetPartition(), p.GetLeaderAddress())
		}
	}
}
