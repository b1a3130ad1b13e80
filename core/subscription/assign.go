package subscription

import (
	"cmp"
	"slices"
)

// Ranks of a partition, by how gladly its holder gives it up.
const (
	mayNotGive    = -1 // it must stay for now
	alreadyGiving = 0
	nothingOut    = 1
	muchOut       = 2
	ranks         = 3
)

// plan says which partitions their holders have to give up so that all members
// end with counts that differ by at most one, and how many each member should
// hold then. owners names a member by its place in join order, -1 for none. As
// few as possible move: whoever holds most, and of those who joined last, keeps the
// odd ones. Each gives the partitions of lowest rank first.
func plan(owners []int, members int, rank func(partition int) int) (give []bool, quota []int) {
	give, quota = make([]bool, len(owners)), make([]int, members)
	if members == 0 {
		return give, quota
	}
	held := make([][]int, members)
	for p, m := range owners {
		if m >= 0 {
			held[m] = append(held[m], p)
		}
	}
	order := make([]int, members)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(held[b]), len(held[a])), cmp.Compare(b, a))
	})
	for i, m := range order {
		quota[m] = len(owners) / members
		if i < len(owners)%members {
			quota[m]++
		}
	}
	for m, parts := range held {
		if len(parts) <= quota[m] {
			continue
		}
		parts = slices.DeleteFunc(slices.Clone(parts), func(p int) bool { return rank(p) == mayNotGive })
		slices.SortStableFunc(parts, func(a, b int) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b, a))
		})
		for _, p := range parts[:min(len(parts), len(held[m])-quota[m])] {
			give[p] = true
		}
	}
	return give, quota
}

// share names a new owner for each free partition, in turn among the members
// below their quota, those with least first, and of them those who joined last:
// when members restart one after the other, they have done so already. Partitions nobody has room for are left out.
func share(owners []int, quota []int, free []int) map[int]int {
	room := make([]int, len(quota))
	copy(room, quota)
	for _, m := range owners {
		if m >= 0 {
			room[m]--
		}
	}
	var takers []int
	for m := range room {
		if room[m] > 0 {
			takers = append(takers, m)
		}
	}
	slices.SortStableFunc(takers, func(a, b int) int {
		return cmp.Or(cmp.Compare(quota[a]-room[a], quota[b]-room[b]), cmp.Compare(b, a))
	})
	to := make(map[int]int, len(free))
	turn := 0
	for _, p := range free {
		if len(takers) == 0 {
			break
		}
		turn %= len(takers)
		m := takers[turn]
		to[p] = m
		if room[m]--; room[m] == 0 {
			takers = slices.Delete(takers, turn, turn+1)
		} else {
			turn++
		}
	}
	return to
}
