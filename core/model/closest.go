package model

import "strings"

// Closest returns the name nearest to the given one by edit distance, or "" if
// none is near enough to be what was meant: about one edit in three characters.
// Among equally near names the first counts.
func Closest(name string, names []string) string {
	best, limit := "", max(1, (len(name)+1)/3)
	for _, n := range names {
		if n == name {
			continue
		}
		if d := editDistance(name, n, limit); d <= limit {
			best, limit = n, d-1
		}
	}
	return best
}

// editDistance counts insertions, removals and replacements of bytes; it gives
// up with limit+1 as soon as the distance is known to be above limit.
func editDistance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	// row[j] is the distance of a[:i] and b[:j].
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal, least := row[0], i+1
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
			least = min(least, d)
		}
		if least > limit {
			return limit + 1
		}
	}
	return row[len(b)]
}

// TopicNotFound is the NOT_FOUND of a topic; it names the closest one there is.
func TopicNotFound(c Catalog, name string) *Error {
	topics := c.Topics()
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	return notFound("topic", name, names)
}

// SubscriptionNotFound is the NOT_FOUND of a subscription; it names the closest
// one of the same topic, else the closest of all.
func SubscriptionNotFound(c Catalog, ref string) *Error {
	topic, _, _ := strings.Cut(ref, "/")
	if _, ok := c.Topic(topic); !ok {
		err := TopicNotFound(c, topic)
		err.Message = "subscription " + ref + ": " + err.Message
		return err
	}
	var same, all []string
	for _, s := range c.Subscriptions() {
		all = append(all, s.Ref())
		if s.TopicName == topic {
			same = append(same, s.Ref())
		}
	}
	if Closest(ref, same) != "" {
		return notFound("subscription", ref, same)
	}
	return notFound("subscription", ref, all)
}

func notFound(what, name string, names []string) *Error {
	if near := Closest(name, names); near != "" {
		return Errorf(NotFound, "%s %q does not exist; did you mean %q?", what, name, near)
	}
	return Errorf(NotFound, "%s %q does not exist", what, name)
}
