package model

import (
	"slices"
	"strings"
	"testing"
)

func TestClosest(t *testing.T) {
	names := []string{"bills", "orders", "orders.eu", "x"}
	for name, want := range map[string]string{
		"order": "orders", "ordres": "orders", "orders.uk": "orders.eu", "bill": "bills", "": "",
		"zebra": "", "y": "", "xs": "", "bil": "", "orders": "", "bilsl": "bills",
	} {
		if name == "orders" {
			want = "" // it is there itself; "orders.eu" is three edits away
		}
		if got := Closest(name, names); got != want {
			t.Errorf("Closest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"abc", "xyz", 3},
		{"mial", "mail", 1}, {"ab", "ba", 1}, {"abcd", "badc", 2},
		{"ca", "abc", 3}} {
		if got := editDistance(c.a, c.b, 9); got != c.want {
			t.Errorf("%q %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
	if got := editDistance("kitten", "sitting", 2); got != 3 {
		t.Errorf("above the limit: %d, want limit+1", got)
	}
}

func TestSubscriptionsAreComparedByName(t *testing.T) {
	c := catalogOf{
		topics: []string{"orders", "bills"},
		refs:   []string{"orders/a", "orders/audit", "bills/mail"},
	}
	for ref, want := range map[string]string{
		"orders/b":     `subscription "orders/b" does not exist`, // however much of the reference is alike
		"orders/aduit": `subscription "orders/aduit" does not exist; did you mean "orders/audit"?`,
		"orders/mail":  `subscription "orders/mail" does not exist`, // bills is something else
		"bill/mail":    `subscription bill/mail: topic "bill" does not exist; did you mean "bills"?`,
	} {
		if got := SubscriptionNotFound(c, ref); got.Message != want {
			t.Errorf("%s: %s", ref, got.Message)
		}
	}
}

// catalogOf is a catalog of names.
type catalogOf struct {
	Catalog
	topics, refs []string
}

func (c catalogOf) Topic(name string) (*Topic, bool) {
	return &Topic{Name: name}, slices.Contains(c.topics, name)
}

func (c catalogOf) Topics() (all []*Topic) {
	for _, name := range c.topics {
		all = append(all, &Topic{Name: name})
	}
	return all
}

func (c catalogOf) Subscriptions() (all []*Subscription) {
	for _, ref := range c.refs {
		topic, name, _ := strings.Cut(ref, "/")
		all = append(all, &Subscription{TopicName: topic, Name: name})
	}
	return all
}
