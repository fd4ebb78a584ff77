//! What an invocation did, as a struct of counts.

/// Makes a struct of counts, which are told as metrics of the same names, and which `+=` adds up.
///
/// ```
/// use metrique::{unit::Count, unit_of_work::metrics};
///
/// tidegate_lambda::report! {
///     /// The counts of one invocation.
///     pub struct Report {
///         /// Records delivered.
///         records,
///     }
/// }
///
/// let mut both = Report { records: 1 };
/// both += &Report { records: 2 };
/// assert_eq!(both, Report { records: 3 });
/// ```
#[macro_export]
macro_rules! report {
    ($(#[doc = $doc:literal])+ pub struct $report:ident { $($(#[doc = $of_count:literal])+ $name:ident,)+ }) => {
        $(#[doc = $doc])+
        #[metrics(rename_all = "PascalCase")]
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $report {
            $($(#[doc = $of_count])+ #[metrics(unit = Count)] pub $name: usize,)+
        }

        impl ::std::ops::AddAssign<&Self> for $report {
            fn add_assign(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}
