package sim

import (
	"github.com/cespare/xxhash/v2"

	"github.com/tapedeck/tapedeck/core/batch"
)

// tagAttribute is what the filters of runs ask for, wantedTag what they want of it.
const (
	tagAttribute = "tag"
	wantedTag    = "red"
)

// filters all mean the same: the wanted tag.
var filters = []string{
	`attributes.tag == "red"`,
	`attributes["tag"].startsWith("re") && !attributes.tag.endsWith("n")`,
	`"tag" in attributes && !(attributes.tag != 'red') || has(attributes.none)`,
	`!(!(attributes.tag in ["amber", "red"]) || attributes.tag == "amber")`,
}

// drawFilters gives a third of the runs subscriptions with a filter.
func drawFilters(s *stream, o *Options) {
	if o.Load.Filtered = pick(s, 0, 0, 1); o.Load.Filtered > 0 {
		o.Load.Wanted, o.Load.Filter = pick(s, 2, 2, 10, 1000), s.IntN(len(filters))
	}
}

// filterOf is the filter of a topic's subscription, counted from 0.
func (l *LoadOptions) filterOf(subscription int) string {
	if subscription >= l.Filtered {
		return ""
	}
	return filters[l.Filter]
}

// tags are a message's attributes.
func (l *LoadOptions) tags(payload []byte) []batch.Attribute {
	if l.Wanted == 0 {
		return nil
	}
	tag := wantedTag
	if h := xxhash.Sum64(payload); h%uint64(l.Wanted) != 0 {
		tag = [...]string{"green", "amber", ""}[h/uint64(l.Wanted)%3]
	}
	if tag == "" {
		return nil
	}
	return []batch.Attribute{{Name: tagAttribute, Value: tag}}
}

// tagOf is a message's tag, as the history calls it.
func tagOf(m *batch.Message) string {
	for _, a := range m.Attributes {
		if a.Name == tagAttribute {
			return a.Value
		}
	}
	return ""
}

// tagWanted is the tag that a filter wants; empty: it is not one of ours.
func tagWanted(filter string) string {
	for _, f := range filters {
		if f == filter {
			return wantedTag
		}
	}
	return ""
}
