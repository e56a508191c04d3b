package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/login"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// patience is how long somebody who has pressed the tab key waits.
const patience = time.Second

// usedQueues returns the names of the queues of a kind, none if nobody answers.
func (a *app) usedQueues(cmd *cobra.Command, fifo bool) []string {
	if err := a.FromEnv(cmd.Flags()); err != nil { // cobra has not done it
		return nil
	}

	a.Timeout = min(a.Timeout, patience)
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*patience)
	defer cancel()

	s, err := a.open(ctx)
	if err != nil {
		return nil
	}
	defer s.close()
	defer context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })()

	list, err := s.list(s.usable, fifo, "") // a page is more than anybody wants to choose from
	if err != nil {
		return nil
	}

	names := make([]string, len(list.Queues))
	for i, q := range list.Queues {
		names[i] = q.Queue
	}
	return names
}

// complete completes the name of the queue.
func (q *queue) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return q.usedQueues(cmd, q.fifo), cobra.ShellCompDirectiveNoFileComp
}

// completeSettings completes the names of settings after that of the queue.
func (q *queue) completeSettings(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return q.complete(cmd, args, typed)
	}
	var names []string
	for s := range settings.All() {
		if strings.HasPrefix(s.Name+"=", typed) {
			names = append(names, s.Name+"=")
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return login.Contexts(), cobra.ShellCompDirectiveNoFileComp
}
