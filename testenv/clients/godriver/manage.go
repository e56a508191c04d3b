package godriver

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

func (c *command) runLook(ctx context.Context, d *driver) (any, error) {
	q := c.queue(d)
	switch c.What {
	case "len":
		n, err := q.Len(ctx)
		return text(n), err
	case "info":
		info, err := q.Info(ctx)
		if err != nil {
			return nil, err
		}
		return numbersAsText(info.Encode())
	case "items":
		return asText(allItems(ctx, q, client.ItemsOptions{State: c.State, Match: c.Match}))
	case "get":
		item, state, err := q.Get(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		o := itemObject(item)
		o["state"] = state
		if item.Parent != nil {
			o["parent"] = item.Parent
		}
		if len(item.Successors) > 0 {
			o["successors"] = item.Successors
		}
		if len(item.Attempts) > 0 {
			o["attempts"], err = asText(item.Attempts, nil)
		}
		return o, err
	case "rank":
		rank := q.Rank
		if c.Max.end {
			rank = q.RankMax
		}
		n, atLeast, err := rank(ctx, c.ID)
		return object{"rank": text(n), "atLeast": atLeast}, err
	case "queues":
		return c.queueNames(ctx, d)
	case "schedules":
		list, err := q.Schedules(ctx)
		return asText(append([]*client.ScheduleRecord{}, list...), err)
	}
	return nil, fmt.Errorf("%w: what %q", errUnsupported, c.What)
}

// queueNames returns the names of all queues of the command's kind.
func (c *command) queueNames(ctx context.Context, d *driver) ([]string, error) {
	list := d.client.ListPriorityQueues
	if c.FIFO {
		list = d.client.ListFIFOQueues
	}

	names := []string{}
	for after := ""; ; {
		page, err := list(ctx, after, 2)
		if err != nil {
			return nil, err
		}
		for _, q := range page.Queues {
			names = append(names, q.Queue)
		}
		if page.Next == nil {
			return names, nil
		}
		after = *page.Next
	}
}

// allItems returns the items of all pages.
func allItems(
	ctx context.Context, q *client.Queue, o client.ItemsOptions,
) ([]client.StoredItem, error) {
	all := []client.StoredItem{}
	for {
		page, err := q.Items(ctx, o)
		all = append(all, page.Items...)
		if err != nil || page.Next == nil {
			return all, err
		}
		o.After = *page.Next
	}
}

func (c *command) runManage(ctx context.Context, d *driver) (any, error) {
	q := c.queue(d)
	if c.IDs != nil || c.Places != nil {
		return c.editItems(ctx, q)
	}

	switch c.What {
	case "move":
		move, name := q.Move, c.ID
		if c.Place != nil {
			move, name = q.MoveAt, *c.Place
		}
		place, err := move(ctx, name, c.Priority)
		return object{"place": place}, err
	case "remove":
		return nil, q.Remove(ctx, c.ID)
	case "redrive":
		return c.redrive(ctx, q)
	case "release":
		return nil, q.Release(ctx, c.ID)
	case "purge":
		n, err := q.Purge(ctx, c.State)
		return object{"purged": text(n)}, err
	case "configure":
		change, err := subjects.ParseChange(c.Settings)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", client.ErrBadRequest, err)
		}
		return settingsAsText(q.ChangeSettings(ctx, change))
	case "pause", "resume":
		_, err := q.ChangeSettings(ctx, c.pausing())
		return nil, err
	case "schedule":
		var s client.Schedule
		if err := json.Unmarshal(c.Schedule, &s); err != nil {
			return nil, err
		}
		s.ID = c.Name
		return asText(q.SetSchedule(ctx, s))
	case "unschedule":
		return nil, q.Unschedule(ctx, c.Name)
	}
	return nil, fmt.Errorf("%w: what %q", errUnsupported, c.What)
}

// editItems changes items by their ids, and answers what became of each.
func (c *command) editItems(ctx context.Context, q *client.Queue) (any, error) {
	edits := map[string]func(context.Context, []string) ([]client.ItemResult, error){
		"remove":  q.RemoveItems,
		"release": q.ReleaseItems,
		"redrive": q.RedriveItems,
		"move": func(ctx context.Context, ids []string) ([]client.ItemResult, error) {
			return q.MoveItems(ctx, ids, c.Priority)
		},
	}
	names := c.IDs
	if c.Places != nil {
		names = c.Places
		edits["redrive"] = q.RedriveItemsAt
		edits["move"] = func(ctx context.Context, places []string) ([]client.ItemResult, error) {
			return q.MoveItemsAt(ctx, places, c.Priority)
		}
	}
	edit, found := edits[c.What]
	if !found {
		return nil, fmt.Errorf("%w: what %q with ids", errUnsupported, c.What)
	}

	results, err := edit(ctx, names)
	answer := []object{}
	for _, r := range results {
		o := object{}
		switch {
		case r.Err() != nil:
			o["error"] = errorObject(r.Err())
		case c.What == "move":
			o["place"] = r.Place
		case c.What == "redrive":
			o["home"] = r.Home
		}
		answer = append(answer, o)
	}
	return answer, err
}

func (c *command) redrive(ctx context.Context, q *client.Queue) (any, error) {
	if c.ID == "" {
		n, err := q.Redrive(ctx, c.Max.n)
		return object{"redriven": text(n)}, err
	}

	results, err := q.RedriveItems(ctx, []string{c.ID})
	if err == nil {
		err = results[0].Err()
	}
	if err != nil {
		return nil, err
	}
	return object{"home": results[0].Home}, nil
}

// pausing is the change of settings that pauses or resumes a group or the queue.
func (c *command) pausing() *subjects.Change {
	pause := c.What == "pause"
	switch {
	case c.Group != nil:
		return &subjects.Change{Groups: map[string]bool{*c.Group: pause}}
	case pause:
		until := time.Now().AddDate(9, 0, 0)
		return &subjects.Change{Settings: client.Settings{PauseUntil: until}}
	}
	return &subjects.Change{Reset: []string{"pause_until"}}
}
