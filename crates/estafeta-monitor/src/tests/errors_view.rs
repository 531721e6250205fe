//! Tests of the errors view.

use super::*;
use crate::model::command::Movement;
use crate::model::errors_view::{ErrorsAnswer, ErrorsView, Page};
use crate::model::request::ErrorsRequest;
use estafeta_lab::message_id::MessageId;

fn ids(ids: &[u64]) -> Vec<MessageId> {
    ids.iter().map(|id| MessageId { partition: None, id: *id }).collect()
}

#[test]
fn errors_can_be_searched_retried_and_dropped_and_all_drops_and_bulk_retries_ask_first() {
    let mut run = RecordedRun::begin().until(3);
    assert_eq!(run.command(MonitorCommand::Errors), [AppRequest::Errors(ErrorsRequest::List(String::new()))]);
    let now = run.now();
    let page = |text: &str| {
        let errors = (1..=3).rev().map(|number| dead_letter(now, number)).collect();
        Page { text: text.to_owned(), errors, kept: 3, searched: 3 }
    };
    run.model.errors_view().unwrap().show(page(""));
    run.command(MonitorCommand::Move(Movement::Down));
    assert_eq!(
        run.command(MonitorCommand::Retry { all: false }),
        [AppRequest::Errors(ErrorsRequest::Retry(ids(&[24])))]
    );
    assert_eq!(run.command(MonitorCommand::Drop { all: true }), []);
    assert_eq!(run.command(MonitorCommand::Confirm(false)), []);
    run.command(MonitorCommand::Drop { all: true });
    assert_eq!(
        run.command(MonitorCommand::Confirm(true)),
        [AppRequest::Errors(ErrorsRequest::Drop(ids(&[36, 24, 12])))]
    );
    run.command(MonitorCommand::Drop { all: false });
    assert_eq!(
        run.command(MonitorCommand::Confirm(true)),
        [AppRequest::Errors(ErrorsRequest::Drop(ids(&[24])))]
    );

    run.command(MonitorCommand::Search);
    run.command(MonitorCommand::Type('z'));
    assert_eq!(
        run.command(MonitorCommand::Type('e')),
        [AppRequest::Errors(ErrorsRequest::List("ze".into()))]
    );
    assert_eq!(run.command(MonitorCommand::Erase), [AppRequest::Errors(ErrorsRequest::List("z".into()))]);
    run.command(MonitorCommand::Enter);
    // The page does not match the search text yet, so nothing is dropped.
    run.command(MonitorCommand::Drop { all: true });
    assert_eq!(run.command(MonitorCommand::Confirm(true)), []);
    run.model.errors_view().unwrap().show(page("z"));
    run.command(MonitorCommand::Retry { all: true });
    assert_eq!(
        run.command(MonitorCommand::Confirm(true)),
        [AppRequest::Errors(ErrorsRequest::Retry(ids(&[36, 24, 12])))]
    );
    assert_eq!(run.command(MonitorCommand::Back), [AppRequest::Errors(ErrorsRequest::List(String::new()))]);
    assert!(run.model.errors_view().is_some());
    run.command(MonitorCommand::Back);
    assert!(run.model.errors_view().is_none());
}

#[test]
fn the_selected_error_stays_selected_when_new_ones_arrive() {
    let mut run = RecordedRun::begin().until(3);
    run.command(MonitorCommand::Errors);
    let now = run.now();
    let page = |newest| {
        let errors = (1..=newest).rev().map(|number| dead_letter(now, number)).collect();
        Page { text: String::new(), errors, kept: newest, searched: newest }
    };
    let view = run.model.errors_view().unwrap();
    view.show(page(3));
    view.command(MonitorCommand::Move(Movement::Last), false);
    assert_eq!(view.selected().unwrap().message.id, 12);
    view.show(page(20));
    assert_eq!(view.selected().unwrap().message.id, 12);
}

#[test]
fn a_change_of_the_errors_requests_a_new_page_and_a_failure_does_not() {
    let mut view = ErrorsView { text: "ze".to_owned(), ..ErrorsView::default() };
    for answer in [ErrorsAnswer::Retried(1), ErrorsAnswer::Dropped(2)] {
        assert_eq!(view.show_answer(answer.clone()), Some(ErrorsRequest::List("ze".to_owned())));
        assert_eq!(view.answer, Some(answer));
    }
    let failed = ErrorsAnswer::Failed { reason: "no answer".to_owned() };
    assert_eq!(view.show_answer(failed.clone()), None);
    assert_eq!(view.answer, Some(failed));
}
