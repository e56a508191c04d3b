package target

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// Pace is how long some finished jobs took, without any whose begin is not known.
type Pace struct {
	Name                 string // what they have in common
	Jobs                 int64
	Median, P95, Longest time.Duration
}

// NewestJobs is how many finished jobs Newest returns.
const NewestJobs = 1000

// Newest returns the newest of pages of finished jobs.
func Newest(pages iter.Seq2[client.ItemsPage, error]) (list []client.StoredItem, err error) {
	for page, err := range pages {
		if err != nil {
			return nil, err
		}
		if list = append(list, page.Items...); len(list) >= NewestJobs {
			break
		}
	}
	return list[:min(len(list), NewestJobs)], nil
}

// Groups are what finished jobs can have in common, for PacesBy.
var Groups = map[string]func(*client.StoredItem) string{
	"holder": func(it *client.StoredItem) string { return it.Holder },
	"type": func(it *client.StoredItem) string {
		return cmp.Or(it.Headers[client.HeaderType]...)
	},
}

// PacesBy sums up how long jobs took that have a name in common, the slowest first.
func PacesBy(list []client.StoredItem, name func(*client.StoredItem) string) (paces []Pace) {
	byName := map[string][]time.Duration{}
	for i := range list {
		if took := Took(&list[i]); took != nil {
			byName[name(&list[i])] = append(byName[name(&list[i])], *took)
		}
	}

	for name, all := range byName {
		slices.Sort(all)
		n := len(all)
		paces = append(paces, Pace{
			Name: name, Jobs: int64(n), Median: all[(n-1)/2], P95: all[(n*95+99)/100-1],
			Longest: all[n-1],
		})
	}
	slices.SortFunc(paces, func(a, b Pace) int {
		return cmp.Or(cmp.Compare(b.Median, a.Median), cmp.Compare(a.Name, b.Name))
	})
	return paces
}
